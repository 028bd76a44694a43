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

// show makes the children of the parent those that make returns for the items. A child stays if its item has not changed, so that a
// reader keeps the place, the selection and the focus; the focus goes to the same control of a child that is made again.
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
const made = new WeakMap() // elements of show: the key and the text of the item
const controls = e => [...e.querySelectorAll('a, button, input, select, summary')]

export const number = n => n.toLocaleString('en-US')
export const plural = (n, one, many = one + 's') => `${number(n)} ${n === 1 ? one : many}`
export const percent = (part, whole) => whole > 0 ? `${Math.round(100 * part / whole)} %` : 'unknown'

// ago returns how long ago the time was at a replica: its clock may differ from that of the browser.
export function ago(time, now) {
  const ms = Date.parse(now) - Date.parse(time)
  if (!(ms >= 0)) return Number.isNaN(ms) ? 'unknown' : 'now'
  const s = Math.floor(ms / 1000)
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
export function bar(part, whole, kind = '', wide = false) {
  const fill = h('i', { class: kind })
  fill.style.width = `${whole > 0 ? Math.max(0, Math.min(100, 100 * part / whole)) : 0}%`
  return h('span', { class: wide ? 'bar wide' : 'bar', 'aria-hidden': 'true' }, fill)
}

// table returns a table and the function that fills it with a row for each item. The first column names the row. A column has a title,
// what it shows of an item (of), and may have n (numbers), kind (of an item: a class) and wide (hidden on small screens).
export function table(name, columns, { stack = true, className = '', row = () => '' } = {}) {
  const body = h('tbody'), head = h('tr', {}, columns.map(c => h('th', { scope: 'col', class: c.n && 'n' }, c.title)))
  const element = h('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': name }, h('table', { class: `${stack ? 'stack ' : ''}${className}`, 'aria-label': name }, h('thead', {}, head), body))
  const make = x => h('tr', { class: row(x) }, columns.map((c, i) => h(i ? 'td' : 'th', {
    scope: i ? undefined : 'row', class: [c.n && 'n', c.wide && 'wide', c.kind?.(x)].filter(Boolean).join(' '), 'data-label': c.n || c.label ? c.title : undefined,
  }, c.of(x))))
  return { element, head, fill: (items, key) => { element.hidden = items.length === 0; show(body, items, key, make) } }
}

// line is a line of its own in a cell, and note a small gray one.
export const line = (...children) => h('span', { class: 'line' }, ...children)
export const note = (...children) => h('span', { class: 'line dim small' }, ...children)

// link returns the address of a view with a query; undefined and empty values are left out.
export function link(path, query = {}) {
  const q = new URLSearchParams(Object.entries(query).filter(([, v]) => v !== undefined && v !== null && v !== ''))
  return `#/${path}${q.size ? '?' + q : ''}`
}
export const podLink = (namespace, pod) => link(`pod/${encodeURIComponent(namespace)}/${encodeURIComponent(pod)}`)

// unitName says what kind of unit a number is.
export const unitName = (resource, unit) => /^\d+$/.test(unit) ? `${/gpu/i.test(resource) ? 'GPU' : 'unit'} ${unit}` : unit
