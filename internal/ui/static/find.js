// Pods and nodes by the beginning of their names.
import { empty, h, link, nodeLink, note, podLink, table } from './dom.js'

export default function find(root, { query: { text = '' } }) {
  const rows = table('Found', [
    { title: 'Name', of: x => [h('a', { class: 'name', href: x.href }, x.name), note(x.namespace ?? 'node')] },
    { title: 'On', of: x => x.node ? nodeLink(x.node) : (x.namespace && 'no node yet') },
  ]), more = h('p', { class: 'dim' })
  root.append(h('h1', {}, `Names that begin with ${text}`), rows.element, more)
  return {
    source: `/api/find?${new URLSearchParams({ text })}`,
    show(found) {
      const all = [...found.nodes.map(name => ({ name, href: link('gpus', { node: name }) })), ...found.pods.map(p => ({ ...p, href: podLink(p.namespace, p.name) }))]
      const same = all.filter(x => x.name === text || `${x.namespace}/${x.name}` === text)
      if (all.length === 1 || same.length === 1) return location.replace((same[0] ?? all[0]).href)
      rows.fill(all, x => x.href)
      more.replaceChildren(...found.more ? ['Only the first 50 are shown.'] : all.length ? [] : [empty(`No pod and no node has a name that begins with ${text}.`, 'Names of pods may follow their namespace and a slash.')])
    },
  }
}
