// Pods and nodes by the beginning of their names.
import { empty, h, named, nodeLink, note, podLink, search, table } from './dom.js'

export default (page, { query: { text = '' } }) => ({
  title: () => `Names that begin with ${text}`,
  source: () => `/api/find?${search({ text })}`,
  draw(found) {
    const all = [...found.nodes.map(name => ({ name, link: nodeLink(name) })), ...found.pods.map(p => ({ ...p, link: podLink(p.namespace, p.name, p.name) }))]
    const same = all.filter(x => x.name === text || `${x.namespace}/${x.name}` === text)
    if (all.length === 1 || same.length === 1) location.replace((same[0] ?? all[0]).link.href)
    return [table('Found', [
      ['Name', x => [named(x.link), note(x.namespace ?? 'node')]],
      ['On', x => x.node ? nodeLink(x.node) : x.namespace && 'no node yet'],
    ], all, x => x.link.href),
    found.more && h('p.dim', 'Only the first 50 are shown.'),
    !all.length && empty(`No pod and no node has a name that begins with ${text}.`, 'Names of pods may follow their namespace and a slash.')]
  },
})
