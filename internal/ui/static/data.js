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

const interval = 2000, longest = 30000

// Poll reads a path again and again until stop. It calls changed with each value that differs from the one before, and failed with an
// error, or with undefined when reading works again. It waits longer after each failure, and rests while nobody sees the page.
export class Poll {
  constructor(path, changed, failed) {
    Object.assign(this, { path, changed, failed, pause: interval, ended: new AbortController() })
    this.visible = () => { if (!document.hidden && this.resting) this.next(0) }
    document.addEventListener('visibilitychange', this.visible)
    this.next(0)
  }
  next(ms) {
    this.resting = false
    clearTimeout(this.timer)
    this.timer = setTimeout(() => this.once(), ms)
  }
  async once() {
    if (document.hidden) { this.resting = true; return }
    let fresh
    try {
      fresh = await read(this.path, { signal: this.ended.signal, headers: this.etag ? { 'If-None-Match': this.etag } : {} })
    } catch (e) {
      if (this.ended.signal.aborted) return
      this.etag = undefined
      this.failed(e)
      this.next(this.pause = Math.min(longest, this.pause * 2))
      return
    }
    if (this.ended.signal.aborted) return
    this.etag = fresh.etag
    this.next(this.pause = interval)
    this.failed(undefined)
    if (fresh.value !== undefined) this.changed(fresh.value)
  }
  stop() {
    this.ended.abort()
    clearTimeout(this.timer)
    document.removeEventListener('visibilitychange', this.visible)
  }
}
