// Squares for units, as pixels: forty thousand elements would take seconds.
import { h } from './dom.js'

export const unhealthy = 1, gone = 2 // flags of units: see NodeUnits in api.go

// legends are the meanings of squares, each with a sample for a pod that needs 3. The dark part that rises from below is what is allocated.
const legends = [
  ['a pod of this size fits', { capacity: 4, used: 1 }], ['some is free, but too little', { capacity: 8, used: 6 }], ['allocated', { capacity: 4, used: 4 }],
  ['reserved for a pod that starts', { capacity: 4, used: 4, reserved: 2 }], ['unhealthy', { capacity: 4, used: 0, flags: unhealthy }], ['no longer there', { capacity: 0, used: 1, flags: gone }],
]
const colors = ['page', 'fits', 'little', 'used', 'dim', 'ill']

// look returns a number that tells what the square of a unit looks like: its color, how much of it is dark, and whether it has a corner.
function look({ capacity, used, reserved, flags }, side, need) {
  const color = flags & gone ? 4 : flags & unhealthy ? 5 : used >= capacity ? 3 : capacity - used >= Math.max(1, need) ? 1 : 2
  const part = capacity > 0 ? Math.min(1, used / capacity) : 1, tall = part > 0 && part < 1 ? Math.max(1, Math.min(side - 1, Math.round(side * part))) : side * part
  return color << 7 | tall << 1 | reserved > 0
}

// rectangles returns what a square with a look consists of. Unhealthy is striped, reserved has a corner, and what is no longer there is an
// outline, so that none depends on color alone.
function rectangles(look, side) {
  const color = colors[look >> 7], tall = look >> 1 & 63, corner = Math.max(2, Math.round(side / 4)), all = [[color, 0, 0, side, side]]
  if (color === 'dim') all.push(['page', 1, 1, side - 2, side - 2])
  else if (color === 'ill') for (let y = 1; y < side; y += 4) all.push(['used', 0, y, side, Math.min(2, side - y)])
  else all.push(['used', 0, side - tall, side, tall], ['mark', 0, side - corner, look & 1 && corner, corner])
  return all
}

// paint draws squares: for each look, the places that have it. A change of color costs more than a rectangle.
function paint([context, color], places, side) {
  for (const [look, at] of places) for (const [name, x, y, width, height] of rectangles(look, side)) {
    context.fillStyle = color(name)
    for (let i = 0; i < at.length; i += 2) context.fillRect(at[i] + x, at[i + 1] + y, width, height)
  }
}

// begin returns the context of a canvas in which lengths are those of the page, and a function that returns a color.
function begin(canvas) {
  const context = canvas.getContext('2d'), style = getComputedStyle(document.documentElement)
  context.setTransform(scale(), 0, 0, scale(), 0, 0)
  return [context, name => style.getPropertyValue(`--${name}`).trim()]
}
const scale = () => window.devicePixelRatio || 1
const canvasOf = (width, height, attributes) => h('canvas', { width: Math.round(width * scale()), height: Math.round(height * scale()), style: { width: `${width}px`, height: `${height}px` }, ...attributes })

export const legend = () => h('ul.legend', { 'aria-label': 'Colors' }, legends.map(([text]) => h('li', canvasOf(14, 14, { 'aria-hidden': 'true' }), text)))
export const paintLegend = () => document.querySelectorAll('.legend canvas').forEach((canvas, i) => paint(begin(canvas), [[look(legends[i][1], 14, 3), [0, 0]]], 14))

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

  // paint draws the squares that look different from those that the canvas has, or all if the canvas, the colors, the names or the choice have changed.
  paint(canvas, need, chosen) {
    const begun = begin(canvas), [context, color] = begun, side = this.pitch - (this.pitch > 8 ? 2 : 1), { nodes, most } = this
    const at = nodes.findIndex(n => n.node === chosen?.node), names = this.label ? nodes.map(n => n.node) : []
    const state = [canvas.width, canvas.height, this.pitch, most, color('used'), at, chosen?.unit, ...names].join()
    if (canvas !== this.painted || state !== this.state) {
      context.clearRect(0, 0, canvas.width, canvas.height)
      this.looks = []
      context.font = '11px system-ui, "DejaVu Sans", sans-serif'
      context.textBaseline = 'top'
      context.fillStyle = color('dim')
      names.forEach((name, at) => {
        const [x, y] = this.place(at, 0)
        context.fillText(shorten(context, name, this.width - 12), x, y - this.label + 2)
      })
    }
    const looks = new Uint16Array(Math.max(this.looks.length, nodes.length * most)), places = new Map()
    nodes.forEach((n, at) => n.units.forEach((u, i) => { looks[at * most + i] = look(u, side, need) }))
    looks.forEach((now, i) => {
      if (now === (this.looks[i] ?? 0)) return
      if (!places.has(now)) places.set(now, [])
      places.get(now).push(...this.place(Math.floor(i / most), i % most))
    })
    paint(begun, places, side)
    for (const [name, width] of at < 0 ? [] : [['page', 6], ['accent', 4]]) {
      context.strokeStyle = color(name)
      context.lineWidth = width
      context.strokeRect(...this.place(at, chosen.unit), side, side)
    }
    Object.assign(this, { chosen, looks, state, painted: canvas })
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
  const keep = Math.floor(text.length * width / context.measureText(text).width) - 1
  return keep >= text.length - 1 ? text : text.slice(0, Math.ceil(keep / 2)) + '…' + text.slice(-Math.floor(keep / 2))
}
