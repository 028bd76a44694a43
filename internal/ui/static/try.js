// Where a pod would fit that does not exist.
import { empty, h, sections, show } from './dom.js'
import { read } from './data.js'
import { explanation } from './pod.js'

const example = `apiVersion: v1
kind: Pod
metadata:
  name: try
spec:
  containers:
  - name: main
    image: example.com/train
    resources:
      requests:
        cpu: "4"
        memory: 16Gi
`
let text = example // kept while the page is open, and nowhere else

// withUnits returns the example with a request of what the policies allocate.
const withUnits = resource => example.replace(/$/, `      limits:\n        ${resource}: 24\n`)

export default function attempt(root, _, page) {
  const input = h('textarea', { id: 'manifest', 'aria-label': 'Manifest of a pod, or of a workload with a template', spellcheck: 'false' })
  input.value = text
  input.addEventListener('input', () => { text = input.value })
  const profile = h('select', { id: 'try-profile', 'aria-label': 'Profile' }), result = h('div', { role: 'region', 'aria-live': 'polite', 'aria-label': 'Result' })
  const button = h('button', { class: 'primary' }, 'Try')
  const form = h('form', {}, input, h('div', { class: 'controls' }, button, profile, h('span', { class: 'dim small' }, 'Ctrl Enter')))
  form.addEventListener('submit', e => { e.preventDefault(); ask() })
  input.addEventListener('keydown', e => { if (e.key === 'Enter' && (e.ctrlKey || e.metaKey)) { e.preventDefault(); ask() } })
  root.append(h('h1', {}, 'Try a pod'), h('p', { class: 'dim' }, 'Where would it fit, and what is missing? Nothing is created, stored or logged.'),
    h('div', { class: 'two' }, form, result))
  result.append(empty('No pod has been tried.', 'Change the manifest, and press Try.'))
  async function ask() {
    button.disabled = true
    try {
      const { value } = await read(`/api/try?${new URLSearchParams({ profile: profile.value })}`, { method: 'POST', headers: { 'Content-Type': 'application/yaml' }, body: input.value })
      if (!result.querySelector('.answer')) result.replaceChildren(h('div', { class: 'answer' }))
      sections(result.firstChild, explanation(value, page))
    } catch (e) {
      result.replaceChildren(h('h2', {}, 'The manifest was not tried'), h('pre', { class: 'bad' }, e.message))
    }
    button.disabled = false
  }
  return {
    overview: o => {
      const memory = o.resources.find(r => r.unit && r.resource.includes('/'))
      if (memory && text === example) input.value = text = withUnits(memory.resource)
      const paths = [...new Set(o.replicas.flatMap(r => r.profiles ?? []).map(p => p.path))]
      show(profile, ['', ...paths], p => p, p => h('option', { value: p }, p ? `Profile ${p}` : 'All profiles'))
      profile.hidden = paths.length < 2
    },
  }
}
