// Where a pod would fit that does not exist.
import { $, choice, empty, h, search } from './dom.js'
import { read } from './data.js'
import { explanation } from './pod.js'

let text // kept while the page is open, and nowhere else

export default page => {
  let profile = '', tries = false, result
  async function ask() {
    tries = true
    text = $('manifest').value
    page.draw()
    try {
      const { value } = await read(`/api/try?${search({ profile })}`, { method: 'POST', headers: { 'Content-Type': 'application/yaml' }, body: text })
      result = value
    } catch (e) {
      result = e
    }
    tries = false
    page.draw()
  }
  return {
    draw() {
      const paths = page.overview.profiles.map(p => p.path)
      text ??= page.overview.example
      const input = h('textarea', { id: 'manifest', 'aria-label': 'Manifest', spellcheck: 'false', value: text,
        oninput(e) { text = e.target.value } })
      return [h('p.dim', 'Where would it fit, and what is missing? Nothing is created, stored or logged.'), h('div.two',
        h('form', { onsubmit(e) { e.preventDefault(); ask() } }, input, h('div.controls', h('button.primary', { disabled: tries }, 'Try'),
          paths.length > 1 && choice('try-profile', 'Profile', [['', 'All profiles'], ...paths.map(p => [p, `Profile ${p}`])], profile, p => { profile = p }))),
        h('div.answer', { role: 'region', 'aria-live': 'polite', 'aria-label': 'Result' }, !result ? empty('No pod has been tried.')
          : result instanceof Error ? [h('h2', 'The manifest was not tried'), h('pre.bad', result.message)] : [result.skipped && h('p.dim', `Without a pod: ${result.skipped.join(', ')}.`), result.refused && h('pre.bad', result.refused.join('\n')), result.pods.map(doc => explanation(doc, page))]))]
    },
  }
}
