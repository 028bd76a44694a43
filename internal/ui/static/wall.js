// Squares for units, as pixels: forty thousand elements would take seconds.
import { h } from './dom.js'

export const unhealthy = 1, gone = 2 // flags of units: see NodeUnits in api.go

// kinds are what the color of a square says. The dark part that rises from below is what is allocated.
const kinds = [ // with a sample for a pod that needs 3
  ['a pod of this size fits', { capacity: 4, used: 1 }], ['some is free, but too little', { capacity: 8, used: 6 }], ['allocated', { capacity: 4, used: 4 }],
  ['reserved for a pod that starts', { capacity: 4, used: 4, reserved: 2 }], ['unhealthy', { capacity: 4, used: 0, flags: unhealthy }], ['no longer there', { capacity: 0, used: 1, flags: gone }],
]
const colors = ['fits', 'little', 'dim', 'page', 'ill', 'used', 'mark'] // what is drawn later covers what was before

const colorOf = ({ capacity, used, flags }, need) => flags & gone ? 'dim' : flags & unhealthy ? 'ill' : used >= capacity ? 'used' : capacity - used >= Math.max(1, need) ? 'fits' : 'little'

// rectangles returns the rectangles of a unit, each with its color. Unhealthy is striped, reserved has a corner, and what is no longer there is an
// outline, so that none depends on color alone.
function rectangles(unit, x, y, side, need, add) {
  const { capacity, used, reserved } = unit, color = colorOf(unit, need)
  add(color, x, y, side, side)
  if (color === 'dim') return add('page', x + 1, y + 1, side - 2, side - 2)
  if (color === 'ill') {
    for (let at = 1; at < side; at += 4) add('used', x, y + at, side, Math.min(2, side - at))
    return
  }
  const corner = Math.max(2, Math.round(side / 4))
  if (reserved > 0) add('mark', x, y + side - corner, corner, corner)
  const part = capacity > 0 ? Math.min(1, used / capacity) : 1
  const tall = part > 0 && part < 1 ? Math.max(1, Math.min(side - 1, Math.round(side * part))) : Math.round(side * part)
  add('used', x, y + side - tall, side, tall)
}

// begin returns the context of a canvas in which lengths are those of the page, and a function that returns a color.
function begin(canvas) {
  const context = canvas.getContext('2d'), style = getComputedStyle(document.documentElement)
  context.setTransform(scale(), 0, 0, scale(), 0, 0)
  context.clearRect(0, 0, canvas.width, canvas.height)
  return [context, name => style.getPropertyValue(`--${name}`).trim()]
}
const scale = () => window.devicePixelRatio || 1
const canvasOf = (width, height, attributes) => h('canvas', { width: Math.round(width * scale()), height: Math.round(height * scale()), style: { width: `${width}px`, height: `${height}px` }, ...attributes })

// paint draws the units, each with its place. It draws color by color, because a change of color costs more than a rectangle.
function paint([context, color], units, side, need) {
  const by = Object.fromEntries(colors.map(name => [name, []]))
  for (const [unit, x, y] of units) rectangles(unit, x, y, side, need, (name, ...rectangle) => by[name].push(...rectangle))
  for (const name of colors) {
    context.fillStyle = color(name)
    const all = by[name]
    for (let i = 0; i < all.length; i += 4) context.fillRect(all[i], all[i + 1], all[i + 2], all[i + 3])
  }
}

export const legend = () => h('ul.legend', { 'aria-label': 'Colors' }, kinds.map(([text]) => h('li', canvasOf(14, 14, { 'aria-hidden': 'true' }), text)))
export const paintLegend = () => document.querySelectorAll('.legend canvas').forEach((canvas, i) => paint(begin(canvas), [[kinds[i][1], 0, 0]], 14, 3))

// across is how many columns of squares a node has.
const across = n => n <= 4 ? n : n <= 16 ? Math.ceil(n / 2) : Math.ceil(Math.sqrt(n * 2))

// Wall draws the units of some nodes and lets people choose one, by mouse or arrow keys. It calls picked(node, unit) with what they choose, and
// hovered(event, node, unit) when the mouse moves; without a node if there is none at the mouse.
export class Wall {
  constructor(name, picked, hovered) {
    Object.assign(this, { name, picked, hovered })
  }

  // pitch returns the largest distance between squares at which all groups together stay about one screen high.
  static pitch(nodes, groups, width) {
    const most = Math.max(1, ...nodes.map(n => n.units.length)), room = Math.max(480, window.innerHeight)
    return [32, 26, 20, 16, 13, 11, 9, 8, 7, 6].find(p => {
      const cell = Wall.cell(p, most), rows = Math.ceil(nodes.length / Math.max(1, Math.floor(width / cell.width))) + groups
      return rows * cell.height <= room
    }) ?? 5
  }
  static cell(pitch, most) {
    const columns = across(most), label = pitch >= 16 ? 18 : 0, gap = pitch >= 16 ? 16 : Math.max(2, pitch >> 1)
    return { most, pitch, columns, label, width: Math.max(columns * pitch, label ? 104 : 0) + gap, height: Math.ceil(most / columns) * pitch + label + gap }
  }

  // canvas returns the canvas for the nodes, which paint draws.
  canvas(nodes, pitch, width) {
    Object.assign(this, { nodes }, Wall.cell(pitch, Math.max(1, ...nodes.map(n => n.units.length))))
    this.perRow = Math.max(1, Math.floor((width + 8) / this.width))
    return canvasOf(Math.min(width, this.perRow * this.width), Math.ceil(nodes.length / this.perRow) * this.height, {
      tabindex: '0', role: 'application', 'aria-roledescription': 'wall of units', 'aria-label': `${this.name}: ${nodes.length} nodes. The arrow keys move from unit to unit.`,
      onclick: e => { const found = this.at(e); if (found) this.picked(...found) },
      onmousemove: e => this.hovered(e, ...this.at(e) ?? []), onmouseleave: this.hovered, onkeydown: e => this.key(e),
    })
  }

  // place returns where a unit of the node with this index is.
  place(at, unit) {
    return [at % this.perRow * this.width + unit % this.columns * this.pitch, Math.floor(at / this.perRow) * this.height + this.label + Math.floor(unit / this.columns) * this.pitch]
  }

  paint(canvas, need, chosen) {
    const begun = begin(canvas), [context, color] = begun, side = this.pitch - (this.pitch > 8 ? 2 : 1)
    paint(begun, this.nodes.flatMap((n, at) => n.units.map((u, i) => [u, ...this.place(at, i)])), side, need)
    context.font = '11px system-ui, "DejaVu Sans", sans-serif'
    context.textBaseline = 'top'
    context.fillStyle = color('dim')
    if (this.label) this.nodes.forEach((n, at) => {
      const [x, y] = this.place(at, 0)
      context.fillText(shorten(context, n.node, this.width - 12), x, y - this.label + 2)
    })
    const at = this.nodes.findIndex(n => n.node === chosen?.node)
    for (const [name, width] of at < 0 ? [] : [['page', 6], ['accent', 4]]) {
      context.strokeStyle = color(name)
      context.lineWidth = width
      context.strokeRect(...this.place(at, chosen.unit), side, side)
    }
    this.chosen = chosen
  }

  // at returns the node at the mouse, and its nearest unit.
  at(e) {
    const column = Math.floor(e.offsetX / this.width), n = this.nodes[Math.floor(e.offsetY / this.height) * this.perRow + column]
    if (column >= this.perRow || !n) return
    const near = (at, count) => Math.max(0, Math.min(count - 1, Math.floor(at / this.pitch))) // between nodes, that beside it
    const dx = near(e.offsetX - column * this.width, this.columns), dy = near(e.offsetY % this.height - this.label, Math.ceil(this.most / this.columns))
    return [n, Math.min(n.units.length - 1, dy * this.columns + dx)]
  }
  // key moves to the nearest unit in the direction of an arrow.
  key(e) {
    const [dx, dy] = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] }[e.key] ?? []
    if (dx === undefined) return
    e.preventDefault()
    const at = this.nodes.findIndex(n => n.node === this.chosen?.node), [x, y] = at < 0 ? [-dx, -dy] : this.place(at, this.chosen.unit)
    let least = Infinity, nearest
    this.nodes.forEach((n, i) => n.units.forEach((_, unit) => {
      const [a, b] = this.place(i, unit), along = (a - x) * dx + (b - y) * dy, far = along + 3 * Math.abs((a - x) * dy + (b - y) * dx)
      if (along > 0 && far < least) [least, nearest] = [far, [n, unit]]
    }))
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
