// Elements, and how numbers and times read.

// h returns an element. Attributes that are undefined, null or false are left out; "on…" are listeners. Children that are texts become text
// nodes, so nothing that comes from the cluster is read as HTML.
export function h(tag, attributes = {}, ...children) {
  const e = document.createElement(tag)
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith('on')) e.addEventListener(name.slice(2), value)
    else if (value === true) e.setAttribute(name, '')
    else if (value !== undefined && value !== null && value !== false) e.setAttribute(name, value)
  }
  e.append(...children.flat(Infinity).filter(c => c !== undefined && c !== null && c !== false && c !== ''))
  return e
}

// show makes the children of the parent those that make returns for the items. A child stays if its item has not changed; the focus goes to
// the same control of a child that is made again.
export function show(parent, items, key, make) {
  const before = new Map([...parent.children].map(e => [made.get(e)?.key, e]))
  const focus = document.activeElement
  let again
  const after = items.map((item, i) => {
    const k = key(item), text = JSON.stringify(item), old = before.get(k)
    if (old && made.get(old).text === text) return old
    const e = make(item, i)
    made.set(e, { key: k, text })
    if (old?.contains(focus)) again = () => (old === focus ? e : controls(e)[controls(old).indexOf(focus)])?.focus()
    return e
  })
  if (after.length !== parent.children.length || after.some((e, i) => e !== parent.children[i])) parent.replaceChildren(...after)
  if (again) again()
  else if (focus && focus !== document.activeElement && parent.contains(focus)) focus.focus()
}
// sections shows parts of a page: each has a key, the data of which make makes it, and perhaps fill, which fills it again.
export function sections(parent, list) {
  show(parent, list, s => s.key, s => s.make())
  list.forEach((s, i) => s.fill?.(parent.children[i]))
}
const made = new WeakMap() // elements of show: the key and the text of the item
const controls = e => [...e.querySelectorAll('a, button, input, select, summary')]

export const number = n => n.toLocaleString('en-US')
export const plural = (n, one, many = one + 's') => `${number(n)} ${n === 1 ? one : many}`
export const amount = (n, unit) => unit ? `${number(n)} ${unit}` : number(n)
export const percent = (part, whole) => whole > 0 ? `${Math.round(100 * part / whole)}\u00a0%` : 'unknown'

// ago returns how long ago the time was at a replica: its clock may differ from that of the browser.
export function ago(time, now) {
  const s = Math.max(0, Math.floor((Date.parse(now) - Date.parse(time)) / 1000))
  if (Number.isNaN(s)) return 'unknown'
  if (s < 60) return `${s} s`
  if (s < 3600) return `${Math.floor(s / 60)} min`
  if (s < 48 * 3600) return `${Math.floor(s / 3600)} h`
  return `${Math.floor(s / 86400)} d`
}

// clock returns the local time of day, with the date if it is another day.
export function clock(time) {
  const t = new Date(time)
  const day = t.toDateString() === new Date().toDateString() ? '' : t.toLocaleDateString('en-CA') + ' '
  return day + t.toLocaleTimeString('en-GB')
}

export const empty = (title, ...text) => h('div', { class: 'empty' }, h('strong', {}, title), ...text)

// bar shows a part of a whole as a length.
export function bar(part, whole, wide = false) {
  const fill = h('i')
  fill.style.width = `${whole > 0 ? Math.max(0, Math.min(100, 100 * part / whole)) : 0}%`
  return h('span', { class: wide ? 'bar wide' : 'bar', 'aria-hidden': 'true' }, fill)
}

// table returns a table and fill, which the element has, too: it makes a row for each item. The first column names the row. A column has a
// title, what it shows of an item (of), and may have n (numbers), kind (a class), wide (hidden on small screens), and label, which small
// screens show before the cell: a text, or true for the title, as numbers have.
export function table(name, columns, { className = '', row = () => '' } = {}) {
  const body = h('tbody'), head = h('tr', {}, columns.map(c => h('th', { scope: 'col', class: c.n && 'n' }, c.title)))
  const element = h('div', { class: 'scroll' }, h('table', { class: `stack ${className}`, 'aria-label': name }, h('thead', {}, head), body))
  element.fill = (items, key) => { element.hidden = items.length === 0; show(body, items, key, make) }
  const make = x => h('tr', { class: row(x) }, columns.map((c, i) => h(i ? 'td' : 'th', {
    scope: i ? undefined : 'row', class: [c.n && 'n', c.wide && 'wide', c.kind?.(x)].filter(Boolean).join(' '), 'data-label': typeof c.label === 'string' ? c.label : c.n || c.label ? c.title + ': ' : undefined,
  }, c.of(x))))
  return { element, head, fill: element.fill }
}

// line is a line of its own in a cell, remark a small one of some kind, and note a gray one.
export const line = (...children) => h('span', { class: 'line' }, ...children)
export const remark = (kind, ...children) => h('span', { class: `line small ${kind}` }, ...children)
export const note = (...children) => remark('dim', ...children)
// nodeLink leads to the units of a node.
export const nodeLink = node => h('a', { href: link('gpus', { node }) }, node)

// filter returns a field that selects by a part of a name: the address of the view follows what is typed.
export function filter(view, query, what) {
  let typing
  const e = h('input', { type: 'search', id: `${view}-find`, placeholder: what, 'aria-label': what, spellcheck: 'false', oninput() {
    clearTimeout(typing)
    typing = setTimeout(() => e.isConnected && location.replace(link(view, { ...query, find: e.value.trim() })), 250)
  } })
  e.value = query.find ?? '' // which puts the cursor at its end
  return e
}

// chips shows links of which one is current. An item has text, href, here, and may have count.
export const chips = (list, items) => show(list, items, i => i.href, i => h('li', {}, h('a', { href: i.href, 'aria-current': i.here && 'true' }, i.text, i.count && h('b', {}, number(i.count)))))
export const chipList = name => h('ul', { class: 'chips', 'aria-label': name })

// choice returns a select. changed gets the new value.
export function choice(id, name, options, value, changed) {
  const e = h('select', { id, 'aria-label': name, onchange: () => changed(e.value) }, options.map(([value, text]) => h('option', { value }, text)))
  e.value = value ?? options[0][0]
  return e
}

// search returns the query of an address; undefined and empty values are left out.
export const search = query => new URLSearchParams(Object.entries(query).filter(([, v]) => v !== undefined && v !== null && v !== ''))

// link returns the address of a view with a query.
export function link(path, query = {}) {
  const q = search(query)
  return `#/${path}${q.size ? '?' + q : ''}`
}
export const podLink = (namespace, pod) => link(`pod/${encodeURIComponent(namespace)}/${encodeURIComponent(pod)}`)

// unitName says what kind of unit a number is.
export const unitName = (resource, unit) => /^\d+$/.test(unit) ? `${/gpu/i.test(resource) ? 'GPU' : 'unit'} ${unit}` : unit
