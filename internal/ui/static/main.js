// Chooses the view by the address, keeps its data and the overview fresh, and handles keys.
import { $, clock, h, hash, number, plural, show } from './dom.js'
import { Poll, Refused } from './data.js'
import waiting from './waiting.js'
import units from './units.js'
import pod from './pod.js'
import attempt from './try.js'
import held from './held.js'
import signals from './signals.js'
import find from './find.js'
import node from './node.js'
import health from './health.js'

// A view is a function of the page and the route, whose query may change later. It returns draw, which returns elements for the value read
// last, and may return the path of the value (source), the title, and functions for when they are shown and for its end (stop).
const views = {
  waiting: { title: 'Waiting', key: 'w', of: waiting },
  gpus: { title: 'GPUs', key: 'u', of: units },
  try: { title: 'Try a pod', key: 't', of: attempt },
  held: { title: 'Who holds what', key: 'h', of: held },
  signals: { title: 'Signals', key: 's', of: signals },
  health: { title: 'Health', key: 'e', of: health },
  node: { title: 'Node', of: node },
  pod: { title: 'Pod', of: pod },
  find: { title: 'Find', of: find },
}
const page = {
  received: 0, stale: false, draw,
  // now returns the time at the replicas.
  now() {
    const at = up()[0]?.now
    return new Date(at ? Date.parse(at) + performance.now() - page.received : Date.now()).toISOString()
  },
  resources: () => page.overview?.resources ?? [],
  unit: resource => page.resources().find(r => r.resource === resource || resource.startsWith(r.resource + '/'))?.unit ?? '',
}
let route, view, value, poll, whole // whole reads the overview

const up = () => page.overview?.replicas.filter(r => !r.error) ?? [] // the replicas that respond

const decoded = text => { try { return decodeURIComponent(text) } catch { return text } }

function go() {
  const [path, query] = location.hash.replace(/^#\/?/, '').split('?'), [name, ...rest] = path.split('/').map(decoded)
  const next = { name: Object.hasOwn(views, name) ? name : 'waiting', rest, query: Object.fromEntries(new URLSearchParams(query)) }
  const place = r => [r.name, ...r.rest, r.query.owner].join('/')
  poll?.stop()
  if (route && place(route) === place(next)) Object.assign(route, next)
  else {
    view?.stop?.()
    value = undefined
    window.scrollTo(0, 0)
    if (route) $('main').focus()
    route = next
    view = views[route.name].of(page, route)
    $('main').replaceChildren(h('div'))
  }
  $('main').firstChild.setAttribute('aria-busy', 'true')
  document.title = `${rest.at(-1) ?? views[route.name].title} · Outboard`
  const source = view.source?.()
  poll = source && new Poll(source, read => {
    if (read !== undefined) {
      value = read
      draw()
      ready()
    }
    state()
  })
  draw()
  state()
}

const ready = () => $('main').firstChild.removeAttribute('aria-busy')

// draw shows what is known now. Of nothing, a view would say that it is empty.
function draw() {
  const known = poll ? value !== undefined : route.name === 'health' ? page.overview : up().length > 0
  const root = $('main').firstChild, drawn = known && view.draw(value)
  if (known || !root.firstChild) show(root, h('h1', view.title?.() ?? views[route.name].title), drawn)
  if (known) view.shown?.()
  if (known && !poll) ready()
  const badges = { waiting: Math.max(0, ...up().map(r => r.waiting)), health: page.overview?.troubles.length }
  show($('views'), Object.entries(views).filter(([, v]) => v.key).map(([name, v]) => h('a', { href: hash(name), 'aria-current': name === route.name && 'page', title: `Keys: g ${v.key}` }, v.title,
    badges[name] > 0 && h('span.badge', { class: name === 'health' && 'bad' }, number(badges[name])))))
}

// state says how fresh the page is. Old data stays, dimmed.
function state() {
  const [first] = up(), { context, problem, troubles = [] } = page.overview ?? {}, failed = [poll, whole].find(p => p?.problem)
  const why = failed ? `No data for ${Math.max(1, Math.round((Date.now() - failed.since) / 1000))} s: ${failed.problem.message}. ` +
    (context || failed.problem instanceof Refused ? '' : 'Is outboard ui or kubectl port-forward still running?') : problem
  show($('notices'), why ? h('p.notice.bad', why, ' The page tries again.')
    : troubles.filter(t => t.incomplete).map(t => h('p.notice', t.text, t.remedy && ' ' + t.remedy)))
  $('context').textContent = context ?? ''
  $('state').textContent = problem ? 'No replica responds' : !first ? 'Loading…'
    : `${up().length === 1 ? first.name : plural(up().length, 'replica')} · ${plural(first.nodes, 'node')}, ${plural(first.pods, 'pod')} · read at ${clock(first.now)}`
  if (page.stale !== Boolean(why)) {
    page.stale = !page.stale
    draw()
  }
  document.body.classList.toggle('stale', page.stale)
}
setInterval(() => page.stale && state(), 1000)
setInterval(() => page.stale || draw(), 5000) // how long ago things were

let began // g was pressed
document.addEventListener('keydown', e => {
  if (e.key === 'Escape' && e.target === $('find')) return $('find').blur()
  if (e.ctrlKey || e.metaKey || e.altKey || e.target.matches('input, textarea, select')) return
  const wanted = began && Object.keys(views).find(name => views[name].key === e.key)
  began = e.key === 'g'
  if (wanted) location.hash = hash(wanted)
  else if (e.key === '/') { e.preventDefault(); $('find').focus() }
  else if (e.key === 'Escape') history.back()
})

$('search').addEventListener('submit', e => {
  e.preventDefault()
  const text = $('find').value.trim()
  if (text) location.hash = hash('find', { text })
})
window.addEventListener('hashchange', go)
window.addEventListener('resize', draw)
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', draw) // squares are pixels
go()
whole = new Poll('/api/overview', overview => {
  if (overview) {
    Object.assign(page, { overview, received: performance.now() })
    if (!poll && view.source?.()) go() // now there is something to read
    draw()
  }
  state()
})
