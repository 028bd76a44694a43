// Where room is, for a pod of some size: one square for each GPU, device or pool.
import { amount, bar, chipList, chips, choice, empty, h, line, link, number, percent, plural, podLink, table, unitName } from './dom.js'
import { Poll, read } from './data.js'
import { Wall, fields, gone, legend, unhealthy } from './wall.js'

export default function units(root, { query }, page) {
  const title = h('h1', {}, 'GPUs'), tabs = chipList('Resources'), summary = h('p', { class: 'sum' }), nothing = h('div')
  const size = h('input', { type: 'number', id: 'size', min: '0', step: '1', inputmode: 'numeric', placeholder: 'any', 'aria-label': 'Amount that a pod needs of one unit' }), unit = h('span')
  const any = h('button', { type: 'button', onclick() { size.value = ''; size.focus(); keep({ need: 0 }) } }, 'Any amount')
  const order = choice('order', 'Order of nodes', [['free', 'most free first'], ['left', 'most left over first'], ['name', 'by name']], query.order, order => keep({ order }))
  const asTable = h('input', { type: 'checkbox', id: 'as-table' })
  asTable.checked = query.table === '1' || (query.table === undefined && window.innerWidth < 480)
  const form = h('form', { class: 'controls' }, h('label', {}, 'A pod needs ', size, ' ', unit), any, h('label', {}, 'Nodes ', order), h('label', {}, asTable, ' as a table'))
  form.addEventListener('submit', e => e.preventDefault())
  const walls = h('div'), colors = legend()
  const rows = table('Nodes', [
    { title: 'Node', kind: () => 'tight', of: n => h('a', { href: link('gpus', { ...query, node: n.node, unit: 0 }) }, n.node) },
    { title: 'Kind', label: true, of: n => data.groups[n.group] },
    { title: 'Free', n: true, of: n => `${number(n.free)} of ${amount(n.total, data.unit)}` },
    { title: 'Pods of this size', n: true, of: n => n.need ? number(n.fit) : '' },
    { title: 'Free of each', of: n => pools() ? [line(describe(n, 0)), bar(n.units[1], n.units[0], true)] : Array.from({ length: n.units.length / fields }, (_, i) => n.units[i * fields + 3] ? state(n.units[i * fields + 3]) : number(freeOf(n.units, i * fields))).join(' · ') },
  ])
  const more = h('p', { class: 'dim' }), selected = h('section', { class: 'selected', role: 'status', 'aria-label': 'Selected unit', hidden: true })
  const tip = h('p', { class: 'tip', 'aria-hidden': 'true', hidden: true }) // what the mouse is on; arrow keys change what is selected
  root.append(title, tabs, form, summary, colors, h('div', { class: 'beside' }, h('div', {}, walls, rows.element, more, nothing), selected), tip)

  const resource = query.resource || page.overview?.resources[0]?.resource
  let data, groups = new Map(), picked, holders, hovered, rest
  const noun = () => pools() ? 'pool' : /gpu/i.test(data.resource) ? 'GPU' : 'unit'
  const pools = () => data.nodes.length > 0 && data.nodes.every(n => n.names?.length === 1 && n.names[0] === n.node) // belong to no node
  const need = () => Math.max(0, Number(size.value) || 0)

  function nodes() {
    const list = data.nodes.map(n => {
      let free = 0, total = 0, fit = 0, left = 0
      for (let i = 0; i < n.units.length; i += fields) {
        total += n.units[i]
        const f = freeOf(n.units, i), pods = need() > 0 ? Math.floor(f / need()) : 0
        free += f
        fit += pods
        left += f - pods * need()
      }
      return { ...n, free, total, fit, left }
    })
    const by = { free: (a, b) => b.free - a.free, left: (a, b) => b.left - a.left, name: () => 0 }[order.value]
    return list.sort((a, b) => by(a, b) || byName(a.node, b.node))
  }

  function draw() {
    if (!data) return
    title.textContent = data.title
    unit.textContent = `${data.unit ?? ''} of one ${noun()}`.trim()
    const all = nodes(), none = all.length === 0
    const list = asTable.checked || pools()
    any.hidden = !need()
    form.hidden = summary.hidden = none
    for (const e of [asTable, order]) e.parentElement.hidden = pools()
    colors.hidden = none || list
    nothing.replaceChildren(...none ? [empty(`No node has ${data.title}.`, `Nodes whose status lists ${data.resource} are shown here.`)] : [])
    const total = sum(all, n => n.total), free = sum(all, n => n.free), fit = sum(all, n => n.fit), left = sum(all, n => n.left)
    summary.replaceChildren(...need() ? [h('b', {}, plural(fit, 'pod')), ` of ${amount(need(), data.unit)} ${fit === 1 ? 'fits' : 'fit'}. `] : [], h('b', {}, percent(total - free, total)), ' is allocated or out of use, ',
      h('b', {}, amount(free, data.unit)), ' free', ...need() ? [', of which pods of this size cannot use ', h('b', {}, amount(left, data.unit)), ` (${percent(left, total)} of all).`] : ['.'])
    walls.hidden = list
    more.textContent = ''
    rows.head.firstChild.textContent = pools() ? 'Pool' : 'Node'
    rows.head.lastChild.textContent = pools() ? 'Allocated' : 'Free of each'
    if (list) tabular(all)
    else { rows.element.hidden = true; wall(all) }
  }

  function wall(all) {
    const side = Wall.pitch(all, data.groups.length, walls.clientWidth)
    const shown = data.groups.map((name, at) => ({ name, nodes: all.filter(n => n.group === at) })).filter(g => g.nodes.length)
    const kept = new Map()
    for (const g of shown) {
      const it = groups.get(g.name) ?? group(g.name)
      kept.set(g.name, it)
      it.fill(g.nodes, side)
    }
    groups = kept
    if (walls.children.length !== shown.length || shown.some((g, i) => walls.children[i] !== kept.get(g.name).element)) walls.replaceChildren(...shown.map(g => kept.get(g.name).element))
  }

  // group is the heading and the wall of one kind of unit.
  function group(name) {
    const head = h('div', { class: 'head' }), w = new Wall(name, (n, i) => pick(n.node, i), hover)
    const element = h('section', { class: 'group', 'aria-label': name }, head, w.canvas)
    return { element, wall: w, fill(list, pitch) {
      const total = sum(list, n => n.total), free = sum(list, n => n.free), fit = sum(list, n => n.fit)
      const count = sum(list, n => n.units.length / fields), ill = sum(list, n => flagged(n, unhealthy))
      head.replaceChildren(h('h2', { class: 'minor' }, name || data.title), h('span', { class: 'dim sum' }, `${plural(count, noun())} on ${plural(list.length, 'node')} · ${percent(total - free, total)} allocated · ${amount(free, data.unit)} free`,
        need() ? [' · ', h('b', {}, number(fit)), ` ${fit === 1 ? 'pod fits' : 'pods fit'}`] : '', ill ? ` · ${number(ill)} unhealthy` : ''))
      w.fill(list, need(), pitch, walls.clientWidth, picked)
    } }
  }

  function tabular(all) {
    const list = query.node ? all.filter(n => n.node.startsWith(query.node)) : all
    rows.fill(list.slice(0, 60).map(n => ({ ...n, need: need() })), n => n.node)
    if (list.length < all.length) more.replaceChildren(h('a', { href: link('gpus', { ...query, node: '', unit: '' }) }, `Show all ${plural(all.length, noun() === 'pool' ? 'pool' : 'node')}`))
    else if (list.length > 60) more.textContent = `60 of ${plural(list.length, 'node')} are shown. Find a node by its name at the top.`
  }

  const describe = (n, i) => {
    const [capacity, used, reserved, flags] = n.units.slice(i * fields, i * fields + fields)
    return [`${number(used)} of ${amount(capacity, data.unit)} allocated`, reserved && `${number(reserved)} of it reserved`, state(flags) || `${number(freeOf(n.units, i * fields))} free`].filter(Boolean).join(', ')
  }

  // keep writes what is chosen into the address, so that a link shows the same.
  function keep(chosen) {
    Object.assign(query, chosen)
    history.replaceState(null, '', link('gpus', { ...query, resource }))
    draw()
  }

  // pick selects one unit and shows who holds it.
  function pick(node, i) {
    picked = { node, unit: i }
    ask(node)
    keep(picked)
    detail()
  }
  const heldOn = node => `/api/held?${new URLSearchParams({ resource, node })}`
  const holding = (rows, name) => rows.filter(r => r.unit === name || r.unit === '')
  const nameOf = (n, i) => n.names?.[i] ?? String(i)
  const full = (n, i) => n.node === nameOf(n, i) ? n.node : `${n.node}, ${unitName(resource, nameOf(n, i))}`

  // hover shows what is at the mouse and, when it rests there, how many pods hold it.
  function hover(e, n, i) {
    const move = () => {
      tip.style.left = `${Math.max(0, Math.min(e.clientX + 12, window.innerWidth - tip.offsetWidth - 8))}px`
      tip.style.top = `${e.clientY + 20}px`
    }
    tip.hidden = !n
    if (n && hovered === full(n, i)) return move()
    hovered = n && full(n, i)
    clearTimeout(rest)
    if (!n) return
    const head = h('b', {}, hovered)
    tip.replaceChildren(head, h('br'), describe(n, i))
    move()
    rest = setTimeout(async () => {
      const { value } = await read(heldOn(n.node)).catch(() => ({}))
      if (value && head.isConnected) tip.append(`, held by ${plural(holding(value.rows, nameOf(n, i)).length, 'pod')}`)
    }, 200)
  }
  function ask(node) {
    if (holders?.node === node) return
    holders?.poll.stop()
    holders = { node }
    holders.poll = new Poll(heldOn(node), v => { holders.rows = v.rows; detail() }, () => {})
  }
  function detail() {
    const n = picked && data?.nodes.find(n => n.node === picked.node)
    selected.hidden = !picked && (!data?.nodes.length || asTable.checked || pools())
    if (!picked) return selected.replaceChildren(`Click on a ${data ? noun() : 'unit'}, or move with the arrow keys, to see who holds it.`)
    if (!n) return selected.replaceChildren(`No node ${picked.node} has ${data?.title ?? 'units'}.`)
    const i = Math.min(picked.unit, n.units.length / fields - 1), here = holding(holders?.rows ?? [], nameOf(n, i))
    selected.replaceChildren(h('strong', {}, full(n, i)), h('p', {}, `${data.groups[n.group] ? `${data.groups[n.group]}: ` : ''}${describe(n, i)}.`),
      h('ul', {}, here.map(r => h('li', {}, r.pod ? h('a', { href: podLink(r.namespace, r.pod) }, `${r.namespace}/${r.pod}`) : r.uid, ` ${amount(r.amount, data.unit)}${r.state === 'running' || r.state === 'bound' ? '' : `, ${r.state}`}`))),
      h('a', { href: link('held', { resource, find: n.node }) }, n.node === nameOf(n, i) ? 'All claims' : 'Everything on this node'))
  }

  size.addEventListener('input', () => keep({ need: need() }))
  asTable.addEventListener('change', () => keep({ table: asTable.checked ? 1 : 0 }))
  const resized = new ResizeObserver(() => draw())
  resized.observe(root)

  function begin() {
    if (query.node) {
      picked = { node: query.node, unit: Number(query.unit) || 0 }
      ask(query.node)
    }
  }
  if (resource) begin()
  return {
    source: resource && `/api/units?${new URLSearchParams({ resource })}`,
    show(value) {
      value = { ...value, nodes: nodesOf(value) }
      if (!data) size.value = Number(query.need ?? usual(value)) || ''
      data = value
      hovered = undefined
      draw()
      detail()
    },
    overview(o) {
      chips(tabs, o.resources.length > 1 ? o.resources.map(r => ({ text: r.title, here: r.resource === resource, href: link('gpus', { resource: r.resource }) })) : [])
      if (!resource && o.resources.length) window.dispatchEvent(new HashChangeEvent('hashchange')) // now there is something to read
      else if (!o.resources.length) {
        form.hidden = colors.hidden = rows.element.hidden = true
        nothing.replaceChildren(empty('Nothing is allocated.', 'No policy of the configuration allocates GPUs, devices or licenses. The policies GPUMemory, Devices and Licenses do.'))
      }
    },
    stop() { clearTimeout(rest); resized.disconnect(); holders?.poll.stop() },
    escape() {
      if (!picked) return false
      picked = undefined
      keep({ node: undefined, unit: undefined })
      detail()
      return true
    },
  }
}

// runs returns the values of runs: pairs of a value and how many times it follows.
const runs = list => list.flatMap((v, i) => i % 2 ? [] : Array(list[i + 1]).fill(v))

// nodesOf returns the nodes of a response with their units: see unitColumns in units.go.
function nodesOf(v) {
  const [group, count, capacity, reserved, flags] = [v.group, v.count, v.capacity, v.reserved, v.flags].map(runs)
  let at = 0
  return v.nodes.map((node, i) => {
    const units = []
    for (const end = at + count[i]; at < end; at++) units.push(capacity[at], v.used[at], reserved[at], flags[at])
    return { node, group: group[i], names: v.names?.[i].length ? v.names[i] : undefined, units }
  })
}

const state = flags => flags & gone ? 'no longer there' : flags & unhealthy ? 'unhealthy' : ''
const byName = new Intl.Collator('en', { numeric: true }).compare
const sum = (list, of) => list.reduce((all, x) => all + of(x), 0)
const freeOf = (u, i) => u[i + 3] & (unhealthy | gone) ? 0 : Math.max(0, u[i] - u[i + 1])
const flagged = (n, flag) => { let count = 0; for (let i = 3; i < n.units.length; i += fields) if (n.units[i] & flag) count++; return count }

// usual is a size to begin with: a quarter of the largest unit.
const usual = value => Math.max(1, Math.round(Math.max(4, ...value.nodes.map(n => n.units[0])) / 4))
