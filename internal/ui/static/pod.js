// Why a pod is on its node or on none, and what would change that.
import { ago, amount, bar, clock, empty, fact, h, line, marked, nodeLink, note, number, plural, remark, search, table, unitName } from './dom.js'

export default (page, { rest: [namespace = '', name = ''], query }) => ({
  title: () => `${namespace}/${name}`,
  source: () => `/explain?${search({ nodes: 20, decisions: 20, ...query, namespace, pod: name })}`,
  draw(doc) {
    // Of a pod that is on a node, the latest call that scored nodes is shown.
    const now = page.now(), scored = !doc.now && doc.decisions?.find(d => d.top?.length)
    const pending = doc.reason?.profile && doc.reason
    return [
      h('p', doc.verdict),
      h('dl.fact',
        fact('Node', doc.node ? nodeLink(doc.node) : doc.known && 'none yet'),
        fact('Holds', doc.holds && holdings(doc.holds, page)),
        fact('Waits', pending && `${ago(pending.since, now)}, since ${clock(pending.since)}`),
        fact('Requeued', pending?.requeues > 0 && `${pending.requeues}×, last ${ago(pending.lastRequeued, now)} ago`),
        fact('Bound', doc.bound && `${clock(doc.bound)}, after ${ago(doc.created, doc.bound)}`),
        fact('kube-scheduler said last', doc.unschedulable, 'wide'),
        fact('Annotation of the decision', doc.annotation, 'wide')),
      scored && scores(scored, page), explanation(doc, page), history(doc),
    ]
  },
})

const holdings = (all, page) => all.map(x => `${amount(x.amount, page.unit(x.resource))} of ${unitName(x.resource, x.unit)}`).join(', ')
const dim = text => h('p.dim', text)

// explanation shows what the profiles say of the pod now.
export const explanation = (doc, page) => [
  !doc.known && !doc.now && !doc.decisions?.length && empty('Outboard does not know this pod.', 'It may have ended, or have another name.'),
  doc.tried && h('p', doc.verdict),
  doc.hints?.map(x => h('p.bad', x)),
  doc.error && h('p.bad', doc.error),
  doc.remedies?.length ? [h('h2', 'It would fit'), h('ul.plain', doc.remedies.map(r => h('li', r.text)))]
    : doc.fits?.fit === 0 && dim(`It would fit: ${doc.change}.`),
  doc.now?.map(p => profileNow(p, doc.now.length > 1 ? `Profile ${p.profile}: ` : '', page)),
]

function profileNow(p, name, page) {
  if (p.unmanaged) return [h('h2', `${name}does not manage this pod`), dim('The pod requests none of its managedResources.')]
  const all = p.explanations ?? []
  return [
    h('h2', `${name || 'It '}fits on ${number(p.fit)} of ${plural(p.nodes, 'node')} now`),
    p.refused && h('p.bad', `A bind call would be refused: ${p.refused}.`),
    p.error && h('p.bad', p.error),
    p.notes?.map(n => dim(`${n.policy}: ${n.notes.join('; ')}`)),
    all.length > 0 && matrix(`${name}Nodes`, all, p.maxTotal, p.nodes, page),
    p.excluded?.length > 0 && [h('h2', 'Nodes that kube-scheduler excludes itself'), h('ul.plain', p.excluded.map(x => h('li', x.text)))],
  ]
}

// matrix shows the scores and reasons of the policies for some nodes, given as engine.Explanation.
function matrix(name, nodes, maxTotal, count, page, chosen) {
  const policies = new Map(nodes.flatMap(x => x.policies.map(o => [o.policy, o.weight])))
  return [h('h2', name), table(name, [
    ['Node', x => [nodeLink(x.node), x.gets?.length > 0 && note(`would get ${holdings(x.gets, page)}`), x.node === chosen && note('chosen by kube-scheduler')]],
    [maxTotal ? `Total of ${number(maxTotal)}` : 'Total', x => x.fits ? [marked('name', number(x.total)), x.holdsAllocation && note('holds its allocation')] : '–', 'n'],
    ...[...policies].map(([name, weight]) => [`${name || 'Outboard'}${weight ? ` × ${weight}` : ''}`, x => opinion(x.policies.find(o => o.policy === name)), 'n score']),
  ], nodes, x => x.node, 'matrix', x => !x.fits ? 'no' : x.node === chosen ? 'at' : ''), count > nodes.length && dim(`${plural(count - nodes.length, 'more node')}.`)]
}

// opinion shows what a policy says of a node, and its notes at the mouse.
function opinion(o) {
  if (!o) return ''
  if (o.code) return [line(marked('bad', o.code)), remark('', o.want ? `${number(o.have ?? 0)} of ${amount(o.want, o.unit)}` : o.text)]
  return h('span', { title: o.notes?.join('\n') }, o.scored ? [number(o.score), bar(o.score, 100)] : marked('dim', 'passes'))
}

// scores shows the best nodes of a call that scored, as kube-scheduler got them.
function scores({ chosen, top, maxTotal, fit }, page) {
  const nodes = chosen && !top.some(n => n.node === chosen.node) ? [...top, chosen] : top
  return matrix('Scores', nodes.map(n => ({ ...n, fits: true, policies: (n.scores ?? []).map(s => ({ ...s, scored: true })) })), maxTotal, fit, page, chosen?.node)
}

function history({ tried, known, decisions }) {
  if (tried || !known && !decisions?.length) return
  return [h('h2', 'Decisions'), table('Decisions', [
    ['Call', d => [d.verb, note(d.profile)]],
    ['Time', d => [clock(d.time), note(d.replica)], 'tight'],
    ['Decision', d => marked(d.error && 'bad', d.outcome)],
    ['Why', d => d.why?.slice(0, 4).map(text => line(text))],
  ], decisions ?? [], d => d.time + d.verb + d.profile) || dim('No call about this pod is recorded.')]
}
