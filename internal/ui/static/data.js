// What the page reads, and how.

export class Refused extends Error {}

// read returns the JSON of one response. Errors have the text of the server.
export async function read(path, options = {}) {
  let response
  try {
    response = await fetch(path, { cache: 'no-store', ...options, signal: AbortSignal.any([AbortSignal.timeout(15000), ...(options.signal ? [options.signal] : [])]) })
  } catch (e) {
    if (options.signal?.aborted) throw e
    throw new Error(e.name === 'TimeoutError' ? 'no response within 15 s' : 'no connection')
  }
  if (response.status === 304) return { etag: options.headers['If-None-Match'] }
  if (!response.ok) throw new Refused(`${response.status}: ${(await response.text()).trim()}`)
  return { etag: response.headers.get('ETag'), value: await response.json() }
}

const interval = 2000, longest = 30000, wakes = ['visibilitychange', 'online']

// Poll reads a path until stop, and calls heard after each time, with the value if it has changed. problem is an error that
// lasts since some time. It waits longer after each failure until another Poll works again, and rests while nobody sees the page.
export class Poll {
  constructor(path, heard) {
    Object.assign(this, { path, heard, pause: interval, ended: new AbortController() })
    this.wake = () => { if (!document.hidden && (this.resting || this.problem)) this.next(0) }
    for (const event of wakes) window.addEventListener(event, this.wake)
    this.next(0)
  }
  next(ms) {
    this.resting = false
    clearTimeout(this.timer)
    this.timer = setTimeout(() => this.once(), ms)
  }
  async once() {
    if (document.hidden) { this.resting = true; return }
    const failed = this.problem
    let fresh = {}
    try {
      fresh = await read(this.path, { signal: this.ended.signal, headers: this.etag ? { 'If-None-Match': this.etag } : {} })
      this.problem = this.since = undefined
    } catch (e) {
      this.problem = e
      this.since ??= Date.now()
    }
    if (this.ended.signal.aborted) return
    this.etag = fresh.etag
    this.next(this.pause = this.problem ? Math.min(longest, this.pause * 2) : interval)
    this.heard(fresh.value)
    if (failed && !this.problem) window.dispatchEvent(new Event('online'))
  }
  stop() {
    this.ended.abort()
    clearTimeout(this.timer)
    for (const event of wakes) window.removeEventListener(event, this.wake)
  }
}
