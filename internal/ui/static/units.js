// Where room is, for a pod of some size: one square for each GPU, device or pool.
import { $, amount, bar, chips, choice, empty, h, hash, line, link, nodeLink, number, percent, plural, search, table, unitName } from './dom.js'
import { Wall, gone, legend, paintLegend, unhealthy } from './wall.js'

export default (page, route) => {
  const walls = new Map() // by group
  let latest, data, usual, width = 0, fitting = false
  const resource = () => route.query.resource || page.resources()[0]?.resource
  const need = () => Math.max(0, Number(route.query.need ?? usual) || 0)
  const pools = () => data.noun === 'pool'
  const asTable = () => pools() || (route.query.table ?? (window.innerWidth < 480 ? '1' : '0')) === '1'
  const nameOf = (n, i) => n.names?.[i] ?? String(i)
  const describe = u => [`${number(u.used)} of ${amount(u.capacity, data.unit)} allocated`, u.reserved && `${number(u.reserved)} of it reserved`, state(u) || `${number(u.free)} free`].filter(Boolean).join(', ')

  // keep writes what is chosen into the address, for links.
  function keep(chosen) {
    Object.assign(route.query, chosen)
    history.replaceState(null, '', hash('gpus', { ...route.query, resource: resource() }))
    page.draw()
  }

  // take keeps what was read, and gives the size of the pod a value to begin with: a quarter of the largest unit.
  function take(value) {
    latest = value
    if (value.resource !== data?.resource) usual = undefined
    data = { ...value, nodes: nodesOf(value) }
    usual ??= Math.max(1, Math.round(Math.max(4, ...data.nodes.map(n => n.units[0].capacity)) / 4))
  }

  // sorted returns the nodes in the order that is chosen, and counts how many pods fit.
  function sorted() {
    const size = need()
    for (const n of data.nodes) {
      n.fit = size && sum(n.units, u => Math.floor(u.free / size))
      n.left = n.free - n.fit * size
    }
    const { order = 'free' } = route.query
    return data.nodes.toSorted(order === 'name' ? (a, b) => a.node < b.node ? -1 : 1 : (a, b) => b[order] - a[order])
  }

  function controls() {
    const size = h('input', { type: 'number', id: 'size', min: '0', placeholder: 'any', value: need() || '',
      oninput: e => keep({ need: Math.max(0, Number(e.target.value) || 0) }) })
    const any = () => { $('size').value = ''; $('size').focus(); keep({ need: 0 }) }
    return h('form.controls', { onsubmit: e => e.preventDefault() }, h('label', 'A pod needs ', size, ` ${data.unit ?? ''} of one ${data.noun}`), need() > 0 && h('button', { type: 'button', onclick: any }, 'Any amount'), !pools() && [
      h('label', 'Nodes ', choice('order', 'Order of nodes', [['free', 'most free first'], ['left', 'most left over first'], ['name', 'by name']], route.query.order, order => keep({ order }))),
      h('label', h('input', { type: 'checkbox', id: 'as-table', checked: asTable(), onchange: e => keep({ table: e.target.checked ? '1' : '0' }) }), ' as a table')])
  }

  function summary(nodes, ...about) {
    const { total, free, fit, left } = totals(nodes), size = need()
    return h('p.sum', about, size > 0 && [h('b', plural(fit, 'pod')), ` of ${amount(size, data.unit)} ${fit === 1 ? 'fits' : 'fit'}. `], h('b', percent(total - free, total)), ' is allocated or out of use, ',
      h('b', amount(free, data.unit)), ' free', size ? `, of which pods of this size cannot use ${amount(left, data.unit)} (${percent(left, total)} of all).` : '.')
  }

  function group(name, nodes, pitch) {
    if (!walls.has(name)) walls.set(name, new Wall((n, i) => { location.hash = nodeLink(n.node, '', nameOf(n, i)).hash }, hover))
    const { ill, count } = totals(nodes)
    return h('section.group', { 'aria-label': name, 'data-key': name }, h('h2', name || 'No model'),
      summary(nodes, `${plural(count, data.noun)} on ${plural(nodes.length, 'node')}`, ill > 0 && `, ${number(ill)} unhealthy`, ': '), walls.get(name).canvas(nodes, pitch, width))
  }

  function wall(all) {
    const pitch = Wall.pitch(all, data.groups.length, width)
    return h('div.walls', data.groups.map((name, at) => group(name, all.filter(n => n.group === at), pitch)))
  }

  function tabular(all) {
    return [table('Nodes', [
      [pools() ? 'Pool' : 'Node', n => pools() ? link(n.node, 'held', { resource: data.resource, find: n.node }) : nodeLink(n.node), 'tight'],
      ['Kind', n => data.groups[n.group], 'label'],
      ['Free', n => `${number(n.free)} of ${amount(n.total, data.unit)}`, 'n'],
      ['Pods of this size', n => need() > 0 && number(n.fit), 'n'],
      pools() ? ['Allocated', n => [line(describe(n.units[0])), bar(n.units[0].used, n.units[0].capacity, true)]] : ['Free of each', freeOfEach],
    ], all.slice(0, 60), n => n.node), all.length > 60 && h('p.dim', `60 of ${plural(all.length, 'node')} are shown. Find others by name at the top.`)]
  }

  function hover(e, n, i) {
    const tip = $('tip')
    tip.hidden = !n
    if (n) tip.replaceChildren(h('b', `${n.node}, ${unitName(data.resource, nameOf(n, i))}`), h('br'), describe(n.units[i]))
    tip.style.left = `${Math.max(0, Math.min(e.clientX + 12, window.innerWidth - tip.offsetWidth - 8))}px`
    tip.style.top = `${e.clientY + 20}px`
  }

  return {
    title: () => data?.title,
    source: () => resource() && `/api/units?${search({ resource: resource() })}`,
    draw(value) {
      if (!value) return empty('Nothing is allocated.', 'No policy of the configuration allocates GPUs, devices or licenses.')
      if (value !== latest) take(value)
      const all = sorted()
      return [chips('Resources', page.resources().map(r => [r.title, hash('gpus', { resource: r.resource }), r.resource === resource()])),
        all.length > 0 && [controls(), summary(all), !asTable() && legend()],
        asTable() ? tabular(all) : wall(all), !all.length && empty(`No node has ${data.title}.`)]
    },
    shown() {
      const room = document.querySelector('.walls')?.clientWidth ?? width
      if (room !== width && !fitting) { // once: with another width, a scrollbar may come or go
        fitting = true
        width = room
        page.draw()
        fitting = false
        return
      }
      paintLegend()
      document.querySelectorAll('.group').forEach(e => walls.get(e.dataset.key).paint(e.querySelector('canvas'), need()))
    },
    stop() { $('tip').hidden = true },
  }
}

// runs returns the values of runs: see Units in api.go.
const runs = list => list.flatMap((v, i) => i % 2 ? [] : Array(list[i + 1]).fill(v))

// nodesOf returns the nodes of a response with their units.
export function nodesOf(v) {
  const [group, count, capacity, reserved, flags] = [v.group, v.count, v.capacity, v.reserved, v.flags].map(runs)
  const units = v.used.map((used, i) => ({ capacity: capacity[i], used, reserved: reserved[i], flags: flags[i], free: flags[i] ? 0 : Math.max(0, capacity[i] - used) }))
  let at = 0
  return v.nodes.map((node, i) => {
    const own = units.slice(at, at += count[i])
    return { node, group: group[i], names: v.names?.[i].length ? v.names[i] : undefined, units: own, count: own.length,
      free: sum(own, u => u.free), total: sum(own, u => u.capacity), ill: own.filter(u => u.flags & unhealthy).length }
  })
}

const state = ({ flags }) => flags & gone ? 'no longer there' : flags & unhealthy ? 'unhealthy' : ''
// freeOfEach says what is free of each unit of a node.
export const freeOfEach = n => n.units.map(u => state(u) || number(u.free)).join(' · ')
export const sum = (list, of) => list.reduce((all, x) => all + of(x), 0)
const totals = nodes => Object.fromEntries(['total', 'free', 'fit', 'left', 'ill', 'count'].map(of => [of, sum(nodes, n => n[of])]))
