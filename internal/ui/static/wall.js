// Squares for units, as pixels: forty thousand elements would take seconds.
import { h } from './dom.js'

export const unhealthy = 1, gone = 2 // flags of units: see NodeUnits in api.go

const colors = ['page', 'fits', 'little', 'used', 'dim', 'ill']

// encoded is a number for what a square looks like: its color, how much of it is dark, from below, and whether it has a corner.
const encoded = (color, dark, corner) => colors.indexOf(color) << 7 | dark << 1 | corner
const legends = [
  ['a pod of this size fits', encoded('fits', 4)], ['some is free, but too little', encoded('little', 10)], ['allocated', encoded('used', 14)],
  ['reserved for a pod that starts', encoded('used', 14, true)], ['unhealthy', encoded('ill')], ['no longer there', encoded('dim')],
]

// look returns what the square of a unit looks like. The dark part is what is allocated.
function look({ capacity, used, reserved, flags }, side, need) {
  const color = flags & gone ? 'dim' : flags & unhealthy ? 'ill' : used >= capacity ? 'used' : capacity - used >= Math.max(1, need) ? 'fits' : 'little'
  const part = capacity > 0 ? Math.min(1, used / capacity) : 1
  return encoded(color, part > 0 && part < 1 ? Math.max(1, Math.min(side - 1, Math.round(side * part))) : side * part, reserved > 0)
}

// rectangles returns the parts of a square. Unhealthy is striped, and what is gone is an outline: none depends on color alone.
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

// begin returns the context of a canvas, with lengths as on the page, and a function that returns a color.
function begin(canvas) {
  const context = canvas.getContext('2d'), style = getComputedStyle(document.documentElement)
  context.setTransform(scale(), 0, 0, scale(), 0, 0)
  return [context, name => style.getPropertyValue(`--${name}`).trim()]
}
const scale = () => window.devicePixelRatio || 1
const canvasOf = (width, height, attributes) => h('canvas', { width: Math.round(width * scale()), height: Math.round(height * scale()), style: { width: `${width}px`, height: `${height}px` }, ...attributes })

export const legend = () => h('ul.legend', { 'aria-label': 'Colors' }, legends.map(([text]) => h('li', canvasOf(14, 14, { 'aria-hidden': 'true' }), text)))
export const paintLegend = () => document.querySelectorAll('.legend canvas').forEach((canvas, i) => paint(begin(canvas), [[legends[i][1], [0, 0]]], 14))

const across = n => n <= 4 ? n : n <= 16 ? Math.ceil(n / 2) : Math.ceil(Math.sqrt(n * 2))

// Wall draws the units of some nodes. It calls picked(node, unit) at a click, and hovered(event, node, unit), if there is one, when the
// mouse moves.
export class Wall {
  constructor(picked, hovered) {
    Object.assign(this, { picked, hovered })
  }

  // pitch returns the largest distance between squares at which all groups together stay about one screen high.
  static pitch(nodes, groups, width) {
    const most = Math.max(1, ...nodes.map(n => n.count)), room = Math.max(480, window.innerHeight)
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
    Object.assign(this, { nodes }, Wall.cell(pitch, Math.max(1, ...nodes.map(n => n.count))))
    this.perRow = Math.max(1, Math.floor((width + 8) / this.width))
    return canvasOf(Math.min(width, this.perRow * this.width), Math.ceil(nodes.length / this.perRow) * this.height, {
      role: 'img', 'aria-label': `${nodes.length} nodes, which the table lists`,
      onclick: e => { const found = this.at(e); if (found) this.picked(...found) },
      onmousemove: e => this.hovered(e, ...this.at(e) ?? []), onmouseleave: this.hovered,
    })
  }

  // place returns where a unit of the node with this index is.
  place(at, unit) {
    return [at % this.perRow * this.width + unit % this.columns * this.pitch, Math.floor(at / this.perRow) * this.height + this.label + Math.floor(unit / this.columns) * this.pitch]
  }

  // paint draws the squares that have changed, or all if something else has.
  paint(canvas, need) {
    const begun = begin(canvas), [context, color] = begun, side = this.pitch - (this.pitch > 8 ? 2 : 1), { nodes, most } = this
    const names = this.label ? nodes.map(n => n.node) : []
    const state = [canvas.width, canvas.height, this.pitch, most, color('used'), ...names].join()
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
    Object.assign(this, { looks, state, painted: canvas })
  }

  // at returns the node at the mouse, and its nearest unit.
  at(e) {
    const column = Math.floor(e.offsetX / this.width), n = this.nodes[Math.floor(e.offsetY / this.height) * this.perRow + column]
    if (column >= this.perRow || !n) return
    const near = (at, count) => Math.max(0, Math.min(count - 1, Math.floor(at / this.pitch))) // between nodes, that beside it
    const dx = near(e.offsetX - column * this.width, this.columns), dy = near(e.offsetY % this.height - this.label, Math.ceil(this.most / this.columns))
    return [n, Math.min(n.count - 1, dy * this.columns + dx)]
  }
}

// shorten cuts the middle of a name: the ends of node names tell them apart.
function shorten(context, text, width) {
  const keep = Math.floor(text.length * width / context.measureText(text).width) - 1
  return keep >= text.length - 1 ? text : text.slice(0, Math.ceil(keep / 2)) + '…' + text.slice(-Math.floor(keep / 2))
}
