// Elements, numbers and times.

export const $ = id => document.getElementById(id)

const given = v => v !== undefined && v !== null && v !== false && v !== ''
const content = children => children.flat(Infinity).filter(given)

// h returns an element, such as h('p.dim', { title: 'all' }, 'text'). Attributes "on…" are listeners. Nothing is read as HTML.
export function h(tag, ...children) {
  const [name, ...classes] = tag.split('.'), e = document.createElement(name)
  const { value, style, class: more, ...attributes } = children[0]?.constructor === Object ? children.shift() : {}
  const all = [...classes, more].filter(Boolean).join(' ')
  if (all) e.className = all
  for (const [name, v] of Object.entries(attributes)) {
    if (name.startsWith('on')) e.addEventListener(name.slice(2), v)
    else if (v === '' || given(v)) e.setAttribute(name, v === true ? '' : v)
  }
  e.append(...content(children))
  Object.assign(e.style, style) // style attributes are not allowed
  if (value !== undefined) e.value = value
  return e
}

// svg returns an element of a picture.
export function svg(tag, attributes, children = []) {
  const e = document.createElementNS('http://www.w3.org/2000/svg', tag)
  for (const [name, v] of Object.entries(attributes)) e.setAttribute(name, v)
  e.append(...children)
  return e
}

// show makes the children of the parent like those given, and keeps elements that it has, with their listeners and the focus.
export function show(parent, ...children) {
  const focus = document.activeElement
  replace(parent, content(children).map(c => c instanceof Node ? c : new Text(c)))
  if (focus !== document.activeElement && parent.contains(focus)) focus.focus({ preventScroll: true }) // it was moved
}

// replace keeps a child if it has the data-key of a new one, or if both are the first p, the second p, and so on.
function replace(parent, children) {
  const old = new Map(keyed([...parent.childNodes]))
  const now = keyed(children).map(([key, fresh]) => {
    const kept = old.get(key)
    if (kept?.nodeName !== fresh.nodeName) return fresh
    old.delete(key)
    if (kept instanceof Text) kept.data = fresh.data
    else update(kept, fresh)
    return kept
  })
  for (const e of old.values()) e.remove()
  now.forEach((e, i) => { if (parent.childNodes[i] !== e) parent.insertBefore(e, parent.childNodes[i] ?? null) })
}

function keyed(nodes) {
  const seen = {}
  return nodes.map(e => [e.dataset?.key ?? e.nodeName + (seen[e.nodeName] = (seen[e.nodeName] ?? 0) + 1), e])
}

function update(old, fresh) {
  for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name)) old.removeAttribute(name)
  for (const { name, value } of fresh.attributes) if (name !== 'style' && old.getAttribute(name) !== value) old.setAttribute(name, value)
  if (old.style.cssText !== fresh.style.cssText) old.style.cssText = fresh.style.cssText
  replace(old, [...fresh.childNodes])
  if (!fresh.matches('input, select, textarea') || old === document.activeElement) return // who types goes on
  if (old.value !== fresh.value) old.value = fresh.value
  old.checked = fresh.checked
}

export const number = n => n.toLocaleString('en-US')
export const plural = (n, one, many = one + 's') => `${number(n)} ${n === 1 ? one : many}`
export const amount = (n, unit) => unit ? `${number(n)} ${unit}` : number(n)
export const percent = (part, whole) => whole > 0 ? `${Math.round(100 * part / whole)}\u00a0%` : 'unknown'

// ago returns how long ago the time was at a replica, whose clock may be another.
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

export const empty = (title, ...text) => h('div.empty', h('strong', title), ...text)

// bar shows a part of a whole as a length.
export const bar = (part, whole, wide) => h('span.bar', { class: wide && 'wide', 'aria-hidden': 'true' },
  h('i', { style: { width: `${whole > 0 ? Math.max(0, Math.min(100, 100 * part / whole)) : 0}%` } }))

// table returns a table with a row for each item, or nothing. A column is [title, content of an item, classes]; the first one names the
// row. Small screens hide the class wide, and show the title before a cell with n (for numbers) or label.
export function table(name, columns, items, key, classes, classOf = () => '') {
  const head = h('tr', columns.map(([title, , kind]) => h('th', { scope: 'col', class: kind }, title)))
  const cell = x => ([title, of, kind = ''], i) => i === 0 ? h('th', { scope: 'row', class: kind }, of(x))
    : h('td', { class: kind, 'data-label': /\b(n|label)\b/.test(kind) && title + ': ' }, of(x))
  const rows = items.map(x => h('tr', { class: classOf(x), 'data-key': key(x) }, columns.map(cell(x))))
  return items.length > 0 && h('div.scroll', { 'data-key': name }, h('table', { class: classes, 'aria-label': name }, h('thead', head), h('tbody', rows)))
}

// line is a line of its own in a cell, remark a small one of some kind, and note a gray one.
export const line = (...children) => h('span.line', ...children)
export const remark = (kind, ...children) => h('span.line.small', { class: kind }, ...children)
export const note = (...children) => remark('dim', ...children)
export const marked = (kind, text) => h('span', { class: kind }, text)

// An address has the view and its query.
export const search = query => new URLSearchParams(Object.entries(query).filter(([, v]) => given(v)))
export const hash = (path, query = {}) => `#/${path}?${search(query)}`.replace(/\?$/, '')
export const link = (text, path, query) => h('a', { href: hash(path, query) }, text)
export const podLink = (namespace, pod, text = `${namespace}/${pod}`) => link(text, `pod/${encodeURIComponent(namespace)}/${encodeURIComponent(pod)}`)
export const nodeLink = (node, text = node, unit) => link(text, `node/${encodeURIComponent(node)}`, { unit })
export const fact = (name, text, wide) => text && h('div', { class: wide }, h('dt', name), h('dd', text))
export const named = link => { link.className = 'name'; return link }

// choose changes the query of the route.
export const choose = (route, chosen) => location.replace(hash(route.name, { ...route.query, ...chosen }))

// filter returns a field that selects by a part of a name.
let typing
export const filter = (route, what) => h('input', { type: 'search', id: `${route.name}-find`, placeholder: what, 'aria-label': what, spellcheck: 'false', value: route.query.find ?? '', oninput({ target }) {
  const find = target.value.trim() // the view may be drawn again before it is used
  clearTimeout(typing)
  typing = setTimeout(() => target.isConnected && choose(route, { find }), 250)
} })

// choice returns a select. changed gets the new value.
export const choice = (id, name, options, value, changed) => h('select', { id, 'aria-label': name, value: value ?? options[0][0], onchange: e => changed(e.target.value) },
  options.map(([value, text]) => h('option', { value }, text)))

// chips returns links, each as [text, href, whether it is current, count], if there are several.
export const chips = (name, items) => items.length > 1 && h('ul.chips', { 'aria-label': name },
  items.map(([text, href, here, count]) => h('li', h('a', { href, 'aria-current': here && 'true' }, text, count && h('b', number(count))))))

// ownerName is the kind of a controller, given as namespace/kind/name, and where it is.
export const ownerName = (owner, [namespace, kind] = owner.split('/')) => kind && kind !== 'Pod' ? `${kind} in ${namespace}` : namespace

// unitName says what kind of unit a number is.
export const unitName = (resource, unit) => /^\d+$/.test(unit) ? `${/gpu/i.test(resource) ? 'GPU' : 'unit'} ${unit}` : unit
