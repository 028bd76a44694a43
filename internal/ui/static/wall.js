// Squares for units, as pixels: forty thousand elements would take seconds.
import { h } from './dom.js'

export const fields = 4, unhealthy = 1, gone = 2 // capacity, used, reserved, flags: see NodeUnits in api.go

// kinds are what the color of a square says. The dark part that rises from below is what is allocated.
const kinds = [ // with a sample for a pod that needs 3
  ['a pod of this size fits', 4, 1, 0, 0], ['some is free, but too little', 8, 6, 0, 0], ['allocated', 4, 4, 0, 0],
  ['reserved for a pod that starts', 4, 4, 2, 0], ['unhealthy', 4, 0, 0, unhealthy], ['no longer there', 0, 1, 0, gone],
]

function colors() {
  const style = getComputedStyle(document.documentElement), c = {}
  for (const name of ['fits', 'little', 'used', 'ill', 'mark', 'dim', 'page', 'accent']) c[name] = style.getPropertyValue(`--${name}`).trim()
  return c
}

const kindOf = (capacity, used, flags, need) => flags & gone ? 'dim' : flags & unhealthy ? 'ill' : used >= capacity ? 'used' : capacity - used >= Math.max(1, need) ? 'fits' : 'little'

// Squares collects rectangles by color, because a change of color costs more than a rectangle.
class Squares {
  by = new Map()
  rect(color, x, y, w, tall) {
    let list = this.by.get(color)
    if (!list) this.by.set(color, list = [])
    list.push(x, y, w, tall)
  }
  // add draws the unit whose fields begin at i. Unhealthy is striped, reserved has a corner, and what is no longer there
  // is an outline, so that none depends on color alone.
  add(x, y, side, u, i, need) {
    const capacity = u[i], used = u[i + 1], kind = kindOf(capacity, used, u[i + 3], need)
    this.rect(kind, x, y, side, side)
    if (kind === 'dim') return this.rect('page', x + 1, y + 1, side - 2, side - 2)
    if (kind === 'ill') {
      for (let at = 1; at < side; at += 4) this.rect('used', x, y + at, side, Math.min(2, side - at))
      return
    }
    const corner = Math.max(2, Math.round(side / 4))
    if (u[i + 2] > 0) this.rect('mark', x, y + side - corner, corner, corner)
    if (kind === 'used') return
    const part = capacity > 0 ? Math.min(1, used / capacity) : 1
    const tall = part > 0 && part < 1 ? Math.max(1, Math.min(side - 1, Math.round(side * part))) : Math.round(side * part)
    if (tall > 0) this.rect('used', x, y + side - tall, side, tall)
  }
  draw(context, colors) {
    for (const color of ['fits', 'little', 'dim', 'page', 'ill', 'used', 'mark']) { // what is drawn later covers what was before
      const list = this.by.get(color) ?? []
      context.fillStyle = colors[color]
      for (let i = 0; i < list.length; i += 4) context.fillRect(list[i], list[i + 1], list[i + 2], list[i + 3])
    }
  }
}

export function legend() {
  const list = h('ul', { class: 'legend', 'aria-label': 'Colors' }), scale = window.devicePixelRatio || 1, c = colors()
  for (const [text, ...unit] of kinds) {
    const canvas = h('canvas', { width: 14 * scale, height: 14 * scale, 'aria-hidden': 'true' })
    canvas.style.width = canvas.style.height = '14px'
    const context = canvas.getContext('2d')
    context.scale(scale, scale)
    const sample = new Squares()
    sample.add(0, 0, 14, unit, 0, 3)
    sample.draw(context, c)
    list.append(h('li', {}, canvas, text))
  }
  return list
}

// block is the shape of a node: as many columns of squares as rows need.
const across = n => n <= 4 ? n : n <= 16 ? Math.ceil(n / 2) : Math.ceil(Math.sqrt(n * 2))

// Wall draws the units of some nodes and lets people choose one, by mouse or arrow keys. It calls picked(node, unit) with what they choose, and
// hovered(event, node, unit) when the mouse moves; without a node if there is none at the mouse.
export class Wall {
  constructor(name, picked, hovered) {
    this.canvas = h('canvas', { tabindex: '0', role: 'application', 'aria-roledescription': 'wall of units' })
    this.name = name
    this.picked = picked
    this.canvas.addEventListener('click', e => {
      const found = this.at(e)
      if (found) picked(...found)
    })
    this.canvas.addEventListener('mousemove', e => hovered(e, ...this.at(e) ?? []))
    this.canvas.addEventListener('mouseleave', hovered)
    this.canvas.addEventListener('keydown', e => this.key(e))
  }

  // pitch returns the largest distance between squares at which all groups together stay about one screen high.
  static pitch(nodes, groups, width) {
    const most = Math.max(1, ...nodes.map(n => n.units.length / fields)), room = Math.max(480, window.innerHeight)
    for (const p of [32, 26, 20, 16, 13, 11, 9, 8, 7, 6]) {
      const [w, tall] = Wall.cell(p, most), rows = Math.ceil(nodes.length / Math.max(1, Math.floor(width / w))) + groups
      if (rows * tall <= room) return p
    }
    return 5
  }
  static cell(pitch, most) {
    const columns = across(most), label = pitch >= 16 ? 18 : 0, gap = pitch >= 16 ? 16 : Math.max(2, pitch >> 1)
    return [Math.max(columns * pitch, label ? 104 : 0) + gap, Math.ceil(most / columns) * pitch + label + gap, columns, label]
  }

  fill(nodes, need, pitch, width, chosen) {
    Object.assign(this, { nodes, need, pitch, chosen })
    this.most = Math.max(1, ...nodes.map(n => n.units.length / fields))
    ;[this.width, this.height, this.columns, this.label] = Wall.cell(pitch, this.most)
    this.perRow = Math.max(1, Math.floor((width + 8) / this.width))
    const scale = window.devicePixelRatio || 1, rows = Math.ceil(nodes.length / this.perRow), w = Math.min(width, this.perRow * this.width), tall = rows * this.height
    const size = [Math.round(w * scale), Math.round(tall * scale)]
    if (this.canvas.width !== size[0] || this.canvas.height !== size[1]) [this.canvas.width, this.canvas.height] = size
    this.canvas.style.width = `${w}px`
    this.canvas.style.height = `${tall}px`
    this.scale = scale
    this.canvas.setAttribute('aria-label', `${this.name}: ${nodes.length} nodes. The arrow keys move from unit to unit.`)
    this.draw()
  }

  place(at, unit) {
    return [at % this.perRow * this.width + unit % this.columns * this.pitch, Math.floor(at / this.perRow) * this.height + this.label + Math.floor(unit / this.columns) * this.pitch]
  }

  draw() {
    const context = this.canvas.getContext('2d'), c = colors(), side = this.pitch - (this.pitch > 8 ? 2 : 1)
    context.setTransform(this.scale, 0, 0, this.scale, 0, 0)
    context.clearRect(0, 0, this.canvas.width, this.canvas.height)
    context.font = '11px system-ui, "DejaVu Sans", sans-serif'
    context.textBaseline = 'top'
    const squares = new Squares()
    this.nodes.forEach((n, at) => {
      if (this.label) {
        const [x, y] = this.place(at, 0)
        context.fillStyle = c.dim
        context.fillText(shorten(context, n.node, this.width - 12), x, y - this.label + 2)
      }
      for (let i = 0; i < n.units.length / fields; i++) {
        const [x, y] = this.place(at, i)
        squares.add(x, y, side, n.units, i * fields, this.need)
      }
    })
    squares.draw(context, c)
    const at = this.nodes.findIndex(n => n.node === this.chosen?.node)
    if (at >= 0) {
      const [x, y] = this.place(at, this.chosen.unit)
      context.strokeStyle = c.page
      context.lineWidth = 6
      context.strokeRect(x, y, side, side)
      context.strokeStyle = c.accent
      context.lineWidth = 4
      context.strokeRect(x, y, side, side)
    }
  }

  // at returns the node at the mouse, and its nearest unit.
  at(e) {
    const box = this.canvas.getBoundingClientRect(), x = e.clientX - box.left, y = e.clientY - box.top
    const column = Math.floor(x / this.width), n = this.nodes[Math.floor(y / this.height) * this.perRow + column]
    if (column >= this.perRow || !n) return
    const near = (at, count) => Math.max(0, Math.min(count - 1, Math.floor(at / this.pitch))) // between nodes, that beside it
    const dx = near(x - column * this.width, this.columns), dy = near(y % this.height - this.label, Math.ceil(this.most / this.columns))
    return [n, Math.min(n.units.length / fields - 1, dy * this.columns + dx)]
  }
  // key moves to the nearest unit in the direction of an arrow.
  key(e) {
    const [dx, dy] = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] }[e.key] ?? []
    if (dx === undefined) return
    e.preventDefault()
    const at = this.nodes.findIndex(n => n.node === this.chosen?.node), [x, y] = at < 0 ? [-dx, -dy] : this.place(at, this.chosen.unit)
    let least = Infinity, nearest
    this.nodes.forEach((n, i) => {
      for (let unit = 0; unit < n.units.length / fields; unit++) {
        const [a, b] = this.place(i, unit), along = (a - x) * dx + (b - y) * dy, far = along + 3 * Math.abs((a - x) * dy + (b - y) * dx)
        if (along > 0 && far < least) [least, nearest] = [far, [n, unit]]
      }
    })
    if (nearest) this.picked(...nearest)
  }
}

// shorten cuts the middle of a name, because the ends of node names tell them apart.
function shorten(context, text, width) {
  if (context.measureText(text).width <= width) return text
  for (let keep = text.length - 2; keep > 2; keep--) {
    const cut = text.slice(0, Math.ceil(keep / 2)) + '…' + text.slice(-Math.floor(keep / 2))
    if (context.measureText(cut).width <= width) return cut
  }
  return text.slice(-3)
}
