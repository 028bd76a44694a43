// Chooses the view by the fragment of the address, keeps its data and the overview fresh, and handles keys.
import { clock, h, link, number, plural, show } from './dom.js'
import { Poll, Refused } from './data.js'
import waiting from './waiting.js'
import units from './units.js'
import pod from './pod.js'
import attempt from './try.js'
import held from './held.js'
import signals from './signals.js'
import find from './find.js'
import health, { Lately, troublesOf } from './health.js'

// A view is a function of the element to fill, the route and the page. It returns what to poll (source; none: nothing) and what to do with
// each value (show), and may have functions for a new overview (overview), for its end (stop), and for Escape (escape).
const views = {
  waiting: { title: 'Waiting', key: 'w', of: waiting },
  gpus: { title: 'GPUs', key: 'u', of: units },
  try: { title: 'Try a pod', key: 't', of: attempt },
  held: { title: 'Who holds what', key: 'h', of: held },
  signals: { title: 'Signals', key: 's', of: signals },
  health: { title: 'Health', key: 'e', of: health },
  pod: { title: 'Pod', of: pod },
  find: { title: 'Find', of: find },
}
const $ = id => document.getElementById(id)
// now is the time at the replicas.
const page = {
  overview: undefined, received: 0,
  now() {
    const at = page.overview?.replicas.find(r => !r.error)?.now
    return new Date(at ? Date.parse(at) + performance.now() - page.received : Date.now()).toISOString()
  },
  // unit returns the unit of amounts of a resource, or of a pool of it.
  unit: resource => page.overview?.resources.find(r => r.resource === resource || resource.startsWith(r.resource + '/'))?.unit ?? '',
  lately: () => calls.of(),
}
const calls = new Lately()
let view, poll, ready, shown, problem, since

function route() {
  const [path, query] = location.hash.replace(/^#\/?/, '').split('?')
  const [name, ...rest] = path.split('/').map(decoded)
  return { name: Object.hasOwn(views, name) ? name : 'waiting', rest, query: Object.fromEntries(new URLSearchParams(query)) }
}

const decoded = text => { try { return decodeURIComponent(text) } catch { return text } }

function go() {
  const r = route(), same = shown?.name === r.name && shown.rest.join('/') === r.rest.join('/')
  poll?.stop()
  view?.stop?.()
  problem = undefined
  if (!same) window.scrollTo(0, 0)
  const root = h('div', { 'aria-busy': 'true', class: same && 'again' }), focus = document.activeElement, chip = focus.closest('.chips')
  view = views[r.name].of(root, r, page)
  $('main').replaceChildren(root)
  ready = () => {
    ready = () => {}
    root.removeAttribute('aria-busy')
    if (same && chip && document.activeElement === document.body) root.querySelector('.chips [aria-current]')?.focus()
  }
  if (same) document.getElementById(focus.id)?.focus() // who types goes on
  else if (shown) $('main').focus()
  shown = r
  document.title = `${[...r.rest].reverse()[0] ?? views[r.name].title} · Outboard`
  known()
  poll = view.source ? new Poll(view.source, value => { view.show(value); ready(); state() }, failed) : undefined
  navigation()
  state()
}

const replicasUp = () => page.overview?.replicas.filter(r => !r.error) ?? []

// known gives the view the overview. A view that polls nothing else is complete then.
function known() {
  if (!page.overview || !replicasUp().length && shown.name !== 'health') return // of nothing, a view would say that it is empty
  view.overview?.(page.overview)
  if (!view.source) ready()
}

function navigation() {
  const count = Math.max(0, ...replicasUp().map(r => r.waiting))
  const troubles = page.overview ? troublesOf(page.overview, page.lately(), page.now()).length : 0
  show($('views'), Object.entries(views).filter(([, v]) => v.key).map(([name, v]) => ({
    name, title: v.title, here: shown?.name === name,
    badge: name === 'waiting' ? count : name === 'health' ? troubles : 0, bad: name === 'health',
  })), v => v.name, v => h('a', { href: link(v.name), 'aria-current': v.here && 'page', title: `Keys: g ${views[v.name].key}` }, v.title,
    v.badge > 0 && h('span', { class: v.bad ? 'badge bad' : 'badge' }, number(v.badge))))
}

function failed(error) {
  if (error && !problem) since = Date.now()
  problem = error
  state()
}

// advice is what somebody can do about an error of the API server.
const advice = text => / is forbidden: /.test(text) ? ' Ask an administrator of the cluster for the permissions to list pods and to create pods/portforward in the namespace of Outboard.'
  : /Unauthorized|provide credentials/.test(text) ? ' Log in to the cluster, and start outboard ui again.' : ''

// state says how fresh the page is. Old data stays, dimmed.
function state() {
  const replicas = page.overview?.replicas ?? [], up = replicasUp(), none = replicas.length > 0 && up.length === 0, notices = []
  document.body.classList.toggle('stale', problem !== undefined || none)
  if (problem) notices.push({ bad: true, text: `No data for ${Math.max(1, Math.round((Date.now() - since) / 1000))} s: ${problem.message}.${advice(problem.message)} ` +
    (page.overview?.context || problem instanceof Refused ? '' : 'Is outboard ui or kubectl port-forward still running? ') + 'The page tries again.' })
  else if (none) notices.push({ bad: true, text: `No replica responds. ${replicas[0].name}: ${replicas[0].error}.${advice(replicas[0].error)} The page tries again.` })
  if (!none) for (const t of page.overview?.troubles ?? []) if (t.incomplete) notices.push({ text: t.text + advice(t.text) })
  show($('notices'), notices, n => n.bad ? 'problem' : n.text, n => h('p', { class: n.bad ? 'notice bad' : 'notice' }, n.text))
  $('context').textContent = page.overview?.context ?? ''
  $('state').textContent = none ? 'No replica responds' : up.length === 0 ? 'Loading…' : `${up.length === 1 ? up[0].name : plural(up.length, 'replica')} · ${plural(up[0].nodes, 'node')}, ` +
    `${plural(up[0].pods, 'pod')} · read at ${clock(up[0].now)}`
}
setInterval(() => problem && state(), 1000)
setInterval(() => { if (!problem) { known(); navigation() } }, 5000) // how long ago things were

let began // g was pressed
document.addEventListener('keydown', e => {
  if (e.key === 'Escape' && e.target === $('find')) return $('find').blur()
  if (e.ctrlKey || e.metaKey || e.altKey || /^(INPUT|TEXTAREA|SELECT)$/.test(e.target.tagName)) return
  const wanted = began && Object.entries(views).find(([, v]) => v.key === e.key)
  began = e.key === 'g'
  if (wanted) location.hash = link(wanted[0])
  else if (e.key === '/') { e.preventDefault(); $('find').focus() }
  else if (e.key === 'Escape' && !view?.escape?.()) history.back()
})

$('search').addEventListener('submit', e => {
  e.preventDefault()
  const text = $('find').value.trim()
  if (text) location.hash = link('find', { text })
})
window.addEventListener('hashchange', go)
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => shown.name === 'gpus' && go()) // the squares are pixels
go()
new Poll('/api/overview', overview => {
  page.overview = overview
  page.received = performance.now()
  calls.add(overview)
  navigation()
  known()
  state()
}, error => poll ? state() : failed(error))
