// Draws the timeline on its canvas: a picture of pixels for the slices, text and marks over it.

import { isDevice, lowerBound, Slices, type Timeline } from '../data/timeline'
import type { Column } from '../data/unpack'
import { characterWidth, clean, formatQuantity, formatTime } from '../format'
import { CLASS_WORDS } from '../parts/classes'
import { CauseShares } from './causes'
import type { Details, SliceRef } from './details'
import { CAUSES, isPinned, type Layout, RULER, STEPS, STICKY, topOf } from './layout'
import { drawLine, isPale, type Line, lineOf, stamp } from './line'
import { inView, type Marks } from './marks'
import { BACKGROUND, halfway, INK, LEVELS, type Palette, paletteOf } from './palette'
import { tickLabel, ticks, type Viewport, xOf } from './viewport'

export const GUTTER = 190
/** Width of the place of a lane's pin, at the right of the gutter. */
export const PIN = 18

export interface Scene {
  timeline: Timeline
  layout: Layout
  view: Viewport
  scroll: number
  width: number
  height: number
  dark: boolean
  selected: Details | null
  /** The slice that a finding's place is named after. */
  named: SliceRef | null
  /** The events of a finding. */
  marks: Marks | null
  range: [number, number] | null
  marked: [number, number] | null
  /** Rows of names that a search matches; null without a search. */
  found: Uint8Array | null
  folded: ReadonlySet<number>
}

/** Packed pixels, as in palette.ts. */
const CURVE = { light: 0xffecc8a9, dark: 0xffa86e3a }

const HEADING = { light: '#f1f3f6', dark: '#1c2229' }

const FONT = '11px system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", sans-serif'

/** A name to write over a slice. */
interface Label {
  pinned: boolean
  x: number
  y: number
  width: number
  text: string
  faint: boolean
}

export class Painter {
  private picture: ImageData | null = null
  private pixels = new Uint32Array(0)
  private line: Line = lineOf(0)
  private palette: Palette | null = null
  private paletteFor: [Timeline, boolean] | null = null
  private causes: Slices | null = null
  private shares: CauseShares | null = null
  private causesFor: Column | null = null
  private drawn: readonly unknown[] | null = null
  private labels: Label[] = []
  private readonly context: CanvasRenderingContext2D

  constructor(private readonly canvas: HTMLCanvasElement) {
    this.context = canvas.getContext('2d', {
      alpha: false,
      // Every frame is a picture made by the CPU: the canvas stays where that is cheap.
      willReadFrequently: true,
    }) as CanvasRenderingContext2D
  }

  paint(scene: Scene): void {
    const ratio = Math.min(2, window.devicePixelRatio || 1)
    const width = Math.max(1, Math.round(scene.width * ratio))
    const height = Math.max(1, Math.round(scene.height * ratio))
    if (!this.picture || this.picture.width !== width || this.picture.height !== height) {
      this.canvas.width = width
      this.canvas.height = height
      this.picture = this.context.createImageData(width, height)
      this.pixels = new Uint32Array(this.picture.data.buffer)
    }
    if (this.paletteFor?.[0] !== scene.timeline || this.paletteFor[1] !== scene.dark) {
      this.palette = paletteOf(scene.timeline, scene.dark)
      this.paletteFor = [scene.timeline, scene.dark]
    }
    const palette = this.palette as Palette
    const drawn = [
      scene.timeline,
      scene.layout,
      scene.view,
      scene.scroll,
      width,
      height,
      scene.dark,
      scene.found,
    ] as const
    // To select something changes only what is drawn over the slices.
    if (this.drawn && drawn.every((value, i) => value === this.drawn?.[i])) {
      this.show(scene, ratio)
      return
    }
    this.drawn = drawn
    this.pixels.fill(palette.background)
    const left = Math.round(GUTTER * ratio)
    const plot = Math.max(1, width - left)
    if (this.line.pixels.length !== plot) this.line = lineOf(plot)
    this.labels = this.slices(scene, palette, ratio, width, height, left)
    this.causeLine(scene, palette, ratio, width, left)
    this.curveColumns(scene, ratio, width, height, left)
    this.show(scene, ratio)
  }

  private show(scene: Scene, ratio: number): void {
    if (!this.picture) return
    this.context.setTransform(1, 0, 0, 1, 0, 0)
    this.context.putImageData(this.picture, 0, 0)
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0)
    this.over(scene, this.labels)
  }

  /** The rows; returns the labels to write over them. */
  private slices(scene: Scene, palette: Palette, ratio: number, width: number, height: number, left: number) {
    const { timeline, layout, view, scroll, found } = scene
    const { slices } = timeline
    const labels: Label[] = []
    const { waits } = timeline
    const colourOf = (slice: number): number => {
      if (waits[slice]) return palette.wait
      return (isDevice(slices.kind[slice]) ? palette.ofWork : palette.ofName)[slices.name[slice]]
    }
    for (const band of layout.bands) {
      const y = topOf(layout, band, scroll)
      const pinned = isPinned(layout, band)
      if (band.kind !== 'row' || y + band.height < STICKY) continue
      if (y > scene.height) break
      const clipTop = Math.round((pinned ? STICKY : STICKY + layout.pinned) * ratio)
      const row = timeline.rows[band.row]
      drawLine(this.line, slices, row, view.from, view.to, palette, colourOf, 26 * ratio)
      if (found) this.fade(scene, palette, row, ratio)
      const bar = Math.round((band.height - 2) * ratio)
      stamp(this.pixels, width, left, Math.round((y + 1) * ratio), bar, this.line, palette, clipTop, height)
      for (const label of this.line.labels)
        labels.push({
          pinned,
          x: GUTTER + label.x / ratio,
          y: y + band.height / 2,
          width: label.width / ratio,
          text: timeline.shortOf(label.slice),
          faint: found !== null && !found[slices.name[label.slice]],
        })
    }
    return labels
  }

  /** Pales everything in the line that a search does not match, wide slices only: the rest is paled as a whole. */
  private fade(scene: Scene, palette: Palette, row: { first: number; end: number }, ratio: number): void {
    const { timeline, view, found } = scene
    const { slices } = timeline
    const { pixels } = this.line
    const keep = pixels.slice()
    for (let x = 0; x < pixels.length; x++)
      if (pixels[x] !== palette.background) pixels[x] = pale(pixels[x], palette.background)
    const scale = pixels.length / (view.to - view.from)
    let last = -1
    const from = Math.max(row.first, slices.lowerBound(row.first, row.end, view.from) - 1)
    for (let i = from; i < row.end && slices.start[i] < view.to; i++) {
      if (!found?.[slices.name[i]]) continue
      const a = Math.max(0, Math.floor((slices.start[i] - view.from) * scale))
      const b = Math.min(pixels.length, Math.max(a + Math.ceil(ratio), Math.round((slices.end(i) - view.from) * scale)))
      if (b <= last) continue
      for (let x = a; x < b; x++) pixels[x] = keep[x]
      last = b
    }
  }

  /** The lane of causes: what the device does, or what it waits for. */
  private causeLine(scene: Scene, palette: Palette, ratio: number, width: number, left: number): void {
    const { timeline, view } = scene
    // Windows from a server come with the same causes.
    if (this.causesFor !== timeline.columns.cause) {
      const { cause_start, cause_duration, cause } = timeline.columns
      this.causes = new Slices(cause_start, cause_duration, cause, cause)
      this.shares = new CauseShares(this.causes, cause, timeline.extra.classes.length)
      this.causesFor = cause
    }
    const causes = this.causes as Slices
    const which = timeline.columns.cause
    const row = { first: 0, end: causes.count }
    drawLine(this.line, causes, row, view.from, view.to, palette, (i) => palette.ofClass[which[i]], 1e9, true)
    const top = Math.round((RULER + STEPS + 2) * ratio)
    const bar = Math.round((CAUSES - 4) * ratio)
    stamp(this.pixels, width, left, top, bar, this.line, palette, 0, this.picture?.height ?? 0)
    this.divided(scene, palette, width, left, top, bar)
  }

  /** Columns of the lane of causes that several of them share: as high as the time of each. */
  private divided(scene: Scene, palette: Palette, width: number, left: number, top: number, bar: number): void {
    const { timeline, view } = scene
    const plot = this.line.pixels.length
    const length = (view.to - view.from) / plot
    const times = new Float64Array(timeline.extra.classes.length)
    for (let x = 0; x < plot; x++) {
      const from = view.from + x * length
      if (!this.shares?.between(from, from + length, times)) continue
      let sum = 0
      let y = 0
      for (let k = 0; k < times.length; k++) {
        sum += times[k]
        const colour = palette.ofClass[k]
        const value = palette.pixels[colour * LEVELS + LEVELS - 1]
        const pattern = palette.pattern[colour]
        for (const until = Math.min(bar, Math.round((sum / length) * bar)); y < until; y++)
          this.pixels[(top + y) * width + left + x] =
            pattern && isPale(pattern, x, top + y) ? halfway(value, palette.background) : value
      }
      for (; y < bar; y++) this.pixels[(top + y) * width + left + x] = palette.background
    }
  }

  private over(scene: Scene, labels: Label[]): void {
    const { context: c } = this
    const { width, height, dark } = scene
    const { ink, dim, line, back } = coloursOf(dark)
    c.font = FONT
    c.textBaseline = 'middle'
    const { pinned } = scene.layout
    this.within(0, STICKY + pinned, width, height, () => this.lanes(scene, labels, false))
    if (pinned) this.within(0, STICKY, width, pinned, () => this.lanes(scene, labels, true))
    this.within(GUTTER, STICKY, width - GUTTER, height, () => this.arrows(scene, ink))
    this.sticky(scene, ink, dim, line, back)
  }

  /** Draws inside a rectangle. */
  private within(x: number, y: number, width: number, height: number, draw: () => void): void {
    const { context: c } = this
    c.save()
    c.beginPath()
    c.rect(x, y, width, height)
    c.clip()
    draw()
    c.restore()
  }

  /** What is drawn over the lanes that scroll, or over those that do not. */
  private lanes(scene: Scene, labels: Label[], pinned: boolean): void {
    const { context: c } = this
    const { width, dark } = scene
    const { ink, dim, line, back } = coloursOf(dark)
    const character = characterWidth(c)
    this.grid(scene, line)
    const bright = dark ? '#0c0f12' : '#10151a'
    for (const { pinned: of, x, y, width: room, text, faint } of labels) {
      if (of !== pinned) continue
      const fits = Math.floor((room - 5) / character)
      if (fits < 2) continue
      // What a search does not match is pale, on a dark page dark: its text takes the page's ink.
      c.fillStyle = faint ? ink : bright
      c.globalAlpha = faint ? 0.55 : 1
      const start = Math.max(x, GUTTER)
      const visible = Math.floor((Math.min(x + room, width) - start - 5) / character)
      if (visible < 2) continue
      const shown = text.length > 400 ? text.slice(0, 400) : text
      const cut = shown.length <= visible ? shown : `${shown.slice(0, Math.max(1, visible - 1))}…`
      // Characters are counted by their mean width; the last word is pressed where they are wider.
      c.fillText(clean(cut), start + 3, y + 0.5, Math.min(x + room, width) - start - 4)
    }
    c.globalAlpha = 1
    if (!pinned) {
      this.curves(scene, ink, dim)
      this.headings(scene, dim)
    }
    this.marks(scene, ink, pinned)
    this.gutter(scene, pinned, ink, dim, line, back)
  }

  private grid(scene: Scene, line: string): void {
    const { context: c } = this
    const plot = scene.width - GUTTER
    c.strokeStyle = line
    c.lineWidth = 1
    c.globalAlpha = 0.4
    c.beginPath()
    for (const time of ticks(scene.view, plot / 110).times) {
      const x = Math.round(GUTTER + xOf(scene.view, plot, time)) + 0.5
      c.moveTo(x, STICKY)
      c.lineTo(x, scene.height)
    }
    c.stroke()
    c.globalAlpha = 1
  }

  /** Frames and highest values of the curves, whose columns are in the picture already. */
  private curves(scene: Scene, ink: string, dim: string): void {
    const { context: c } = this
    const plot = scene.width - GUTTER
    c.strokeStyle = dim
    c.textAlign = 'right'
    for (const band of scene.layout.bands) {
      const top = topOf(scene.layout, band, scene.scroll)
      if (band.kind !== 'series' || top > scene.height || top + band.height < STICKY) continue
      const { info, high } = scene.timeline.series[band.series]
      c.globalAlpha = 0.4
      c.strokeRect(GUTTER - 0.5, top + 0.5, plot + 1, band.height - 1)
      c.globalAlpha = 1
      c.fillStyle = ink
      c.fillText(formatQuantity(info.type, high), scene.width - 4, top + 9)
    }
    c.textAlign = 'left'
  }

  /** The curves as one column of pixels each: of many points in one pixel the highest counts. A path of as many corners
   * would cost a frame's whole time. */
  private curveColumns(scene: Scene, ratio: number, width: number, height: number, left: number): void {
    const { timeline, view, dark } = scene
    const plot = width - left
    const colour = dark ? CURVE.dark : CURVE.light
    const clipTop = Math.round((STICKY + scene.layout.pinned) * ratio)
    for (const band of scene.layout.bands) {
      const y = topOf(scene.layout, band, scene.scroll)
      if (band.kind !== 'series' || y > scene.height || y + band.height < STICKY) continue
      const { time, value, low, high } = timeline.series[band.series]
      const top = Math.round((y + 3) * ratio)
      const bottom = Math.round((y + band.height - 2) * ratio)
      const scale = (bottom - top) / (high - low || 1)
      const zero = Math.round(bottom - (Math.max(0, low) - low) * scale)
      let i = lowerBound(time, view.from)
      let level = i > 0 ? value[i - 1] : Number.NaN
      for (let x = 0; x < plot; x++) {
        const until = view.from + ((x + 1) / plot) * (view.to - view.from)
        let peak = level
        for (; i < time.length && time[i] < until; i++) {
          level = value[i]
          if (!(peak >= level)) peak = level
        }
        // Nothing is known before the first point.
        if (Number.isNaN(peak)) continue
        const end = Math.round(bottom - (peak - low) * scale)
        const from = Math.max(clipTop, Math.min(zero, end))
        const to = Math.min(height, Math.max(zero, end, Math.min(zero, end) + 1))
        for (let at = from * width + left + x, stop = to * width; at < stop; at += width) this.pixels[at] = colour
      }
    }
  }

  private marks(scene: Scene, ink: string, pinned: boolean): void {
    const { context: c } = this
    const plot = scene.width - GUTTER
    const stretch = (range: [number, number] | null, fill: string, edge: string) => {
      if (!range) return
      const a = GUTTER + xOf(scene.view, plot, range[0])
      const b = GUTTER + xOf(scene.view, plot, range[1])
      c.fillStyle = fill
      c.fillRect(a, STICKY, Math.max(1, b - a), scene.height)
      c.strokeStyle = edge
      c.lineWidth = 1
      c.beginPath()
      for (const x of [a, b]) {
        c.moveTo(Math.round(x) + 0.5, STICKY)
        c.lineTo(Math.round(x) + 0.5, scene.height)
      }
      c.stroke()
    }
    stretch(
      scene.marked,
      scene.dark ? 'rgb(255 200 90 / 9%)' : 'rgb(255 170 0 / 11%)',
      scene.dark ? '#e3ac4f' : '#b87400',
    )
    stretch(
      scene.range,
      scene.dark ? 'rgb(108 176 255 / 14%)' : 'rgb(11 98 196 / 11%)',
      scene.dark ? '#6cb0ff' : '#0b62c4',
    )
    this.events(scene, pinned, ink)
    this.outline(scene, pinned, scene.named, ink, 1)
    if (scene.selected) this.outline(scene, pinned, scene.selected.slice, ink, 2)
  }

  /** Every event of a finding, underlined. */
  private events(scene: Scene, pinned: boolean, ink: string): void {
    const { timeline, layout, view, marks } = scene
    if (!marks) return
    const { context: c } = this
    const plot = scene.width - GUTTER
    c.fillStyle = ink
    for (const band of layout.bands) {
      const y = topOf(layout, band, scene.scroll)
      if (y > scene.height) break
      if (band.kind !== 'row' || isPinned(layout, band) !== pinned || y + band.height < STICKY) continue
      // A folded lane is represented by its first row.
      const rows = scene.folded.has(band.lane) ? timeline.laneRows[band.lane].count : 1
      for (let row = band.row; row < band.row + rows; row++)
        for (const [from, to] of inView(marks, row, view, plot))
          c.fillRect(GUTTER + from, y + band.height - 3, Math.max(2, to - from), 3)
    }
  }

  private outline(scene: Scene, pinned: boolean, slice: SliceRef | null, colour: string, width: number): void {
    const box = slice && boxOf(scene, slice)
    if (!box || box.pinned !== pinned) return
    const { context: c } = this
    c.strokeStyle = colour
    c.lineWidth = width
    c.strokeRect(box.x - 0.5, box.y + 0.5, box.width + 1, box.height - 1)
  }

  /** Arrows of the selection: launch to work, forward to backward. */
  private arrows(scene: Scene, ink: string): void {
    const { selected } = scene
    if (!selected) return
    const pairs: [SliceRef, SliceRef][] = []
    if (selected.launch) pairs.push([selected.launch, selected.slice])
    // The launches themselves may be inside the selected operator: the arrow begins where it does.
    for (const work of selected.launched.slice(0, 60)) pairs.push([selected.slice, work])
    if (selected.forward) pairs.push([selected.forward, selected.slice])
    for (const back of selected.backward.slice(0, 20)) pairs.push([selected.slice, back])
    const { context: c } = this
    c.strokeStyle = ink
    c.fillStyle = ink
    c.lineWidth = pairs.length > 12 ? 0.6 : 1.2
    c.globalAlpha = pairs.length > 12 ? 0.55 : 0.9
    for (const [from, to] of pairs) {
      const a = boxOf(scene, from)
      const b = boxOf(scene, to)
      if (!a || !b) continue
      const x1 = a.x + Math.min(3, a.width / 2)
      const y1 = a.y + (b.y > a.y ? a.height : 0)
      const y2 = b.y + (b.y > a.y ? 0 : b.height)
      const x2 = b.x
      const bend = Math.max(24, Math.abs(x2 - x1) / 3)
      c.beginPath()
      c.moveTo(x1, y1)
      c.bezierCurveTo(x1 + bend, y1, x2 - bend, y2, x2, y2)
      c.stroke()
      c.beginPath()
      c.moveTo(x2 + 1, y2)
      c.lineTo(x2 - 6, y2 - 3.5)
      c.lineTo(x2 - 6, y2 + 3.5)
      c.fill()
    }
    c.globalAlpha = 1
  }

  /** Headings right of the gutter; arrows go over them. */
  private headings(scene: Scene, dim: string): void {
    const { context: c } = this
    for (const band of scene.layout.bands) {
      const y = topOf(scene.layout, band, scene.scroll)
      if (y > scene.height) break
      if (band.kind !== 'heading' || y + band.height < STICKY) continue
      c.fillStyle = HEADING[scene.dark ? 'dark' : 'light']
      c.fillRect(GUTTER, y + 2, scene.width - GUTTER, band.height - 4)
      c.fillStyle = dim
      c.fillText(band.hint, GUTTER + 4, y + band.height / 2)
    }
  }

  private gutter(scene: Scene, pinned: boolean, ink: string, dim: string, line: string, back: string): void {
    const { context: c } = this
    c.fillStyle = back
    c.fillRect(0, STICKY, GUTTER - 1, scene.height)
    for (const band of scene.layout.bands) {
      const y = topOf(scene.layout, band, scene.scroll)
      if (y > scene.height) break
      if (isPinned(scene.layout, band) !== pinned || y + band.height < STICKY) continue
      const middle = y + band.height / 2
      if (band.kind === 'heading') {
        c.fillStyle = HEADING[scene.dark ? 'dark' : 'light']
        c.fillRect(0, y + 2, GUTTER, band.height - 4)
        c.fillStyle = ink
        c.font = `600 ${FONT}`
        c.fillText(clean(band.title, 60), 8, middle, GUTTER - 14)
        c.font = FONT
      } else if (band.kind === 'series') {
        c.fillStyle = ink
        c.fillText(clip(scene.timeline.series[band.series].info.label, 28), 8, middle, GUTTER - 14)
      } else if (band.first) {
        const lane = scene.timeline.extra.lanes[band.lane]
        const rows = scene.timeline.laneRows[band.lane].count
        c.strokeStyle = line
        c.beginPath()
        c.moveTo(0, y - 2.5)
        c.lineTo(scene.width, y - 2.5)
        c.stroke()
        c.fillStyle = dim
        if (rows > 1) c.fillText(scene.folded.has(band.lane) ? '▸' : '▾', 8, middle)
        c.fillStyle = ink
        // A pinned lane has left the heading that says whose it is.
        const whose = pinned && lane.side === 'device' && !lane.label.includes('GPU') ? `GPU ${lane.process}, ` : ''
        c.fillText(clip(`${whose}${lane.label}`, 26), 20, middle, GUTTER - 22 - PIN)
        this.pin(GUTTER - PIN / 2 - 3, middle, pinned, dim, ink)
      }
    }
    c.strokeStyle = line
    c.beginPath()
    c.moveTo(GUTTER - 0.5, STICKY)
    c.lineTo(GUTTER - 0.5, scene.height)
    c.stroke()
  }

  /** A drawing pin: filled where the lane stays, an outline where it scrolls. */
  private pin(x: number, y: number, pinned: boolean, dim: string, ink: string): void {
    const { context: c } = this
    c.strokeStyle = c.fillStyle = pinned ? ink : dim
    c.globalAlpha = pinned ? 1 : 0.6
    c.beginPath()
    c.arc(x, y - 2, 3, 0, 2 * Math.PI)
    if (pinned) c.fill()
    c.moveTo(x, y + 1)
    c.lineTo(x, y + 6)
    c.stroke()
    c.globalAlpha = 1
  }

  /** Ruler, steps and the words of the lane of causes. */
  private sticky(scene: Scene, ink: string, dim: string, line: string, back: string): void {
    const { context: c } = this
    const { view, width, timeline } = scene
    const plot = width - GUTTER
    c.fillStyle = back
    c.fillRect(0, 0, width, RULER + STEPS)
    c.fillStyle = dim
    const { step, times } = ticks(view, plot / 110)
    const low = timeline.extra.span[0]
    c.strokeStyle = line
    c.beginPath()
    // A mark goes without its label where that would leave the picture, or stand under the length of a stretch.
    const taken = this.stretches(scene, c)
    for (const time of times) {
      const x = Math.round(GUTTER + xOf(view, plot, time)) + 0.5
      if (x < GUTTER) continue
      c.moveTo(x, RULER - 7)
      c.lineTo(x, RULER)
      const label = tickLabel(time - low, step)
      const end = x + 3 + c.measureText(label).width
      if (end < width && taken.every(({ from, to }) => end < from - 4 || x > to + 4)) c.fillText(label, x + 3, 11)
    }
    c.moveTo(0, RULER + 0.5)
    c.lineTo(width, RULER + 0.5)
    c.stroke()
    this.steps(scene, ink, line)
    c.fillStyle = back
    c.fillRect(0, RULER + 1, GUTTER - 1, STICKY - RULER - 1)
    c.fillStyle = ink
    c.fillText('steps', 8, RULER + STEPS / 2)
    const device = timeline.extra.device
    c.fillText(device === '' ? 'no device work' : `what GPU ${device} does`, 8, RULER + STEPS + CAUSES / 2)
    c.fillStyle = dim
    c.fillText('time', 8, 12)
    c.strokeStyle = line
    c.beginPath()
    for (const y of scene.layout.pinned ? [STICKY, STICKY + scene.layout.pinned] : [STICKY]) {
      c.moveTo(0, y - 1.5)
      c.lineTo(width, y - 1.5)
    }
    c.stroke()
    this.causeWords(scene)
    for (const { a, b, from, words, colour } of taken) {
      c.fillStyle = colour
      c.fillRect(a, RULER - 3, Math.max(2, b - a), 3)
      c.fillText(words, from, 11)
    }
  }

  /** The marked and the measured stretch as they stand on the ruler, with the room that their lengths take there. */
  private stretches(scene: Scene, c: CanvasRenderingContext2D) {
    const plot = scene.width - GUTTER
    const found: { a: number; b: number; from: number; to: number; words: string; colour: string }[] = []
    for (const [range, colour] of [
      [scene.marked, scene.dark ? '#e3ac4f' : '#b87400'],
      [scene.range, scene.dark ? '#6cb0ff' : '#0b62c4'],
    ] as const) {
      if (!range) continue
      const a = Math.max(GUTTER, GUTTER + xOf(scene.view, plot, range[0]))
      const b = Math.min(scene.width, GUTTER + xOf(scene.view, plot, range[1]))
      if (b < GUTTER || a > scene.width) continue
      const words = formatTime(range[1] - range[0])
      const half = c.measureText(words).width / 2
      // A short stretch's length may be wider than the stretch: it stays inside the picture.
      const middle = Math.max(GUTTER + half + 2, Math.min((a + b) / 2, scene.width - half - 2))
      const one = { a, b, from: middle - half, to: middle + half, words, colour }
      // Two stretches in one place: the measured one is the one asked for last.
      const under = found.findIndex((other) => other.to > one.from - 4 && other.from < one.to + 4)
      if (under >= 0) found[under].words = ''
      found.push(one)
    }
    return found
  }

  private steps(scene: Scene, ink: string, line: string): void {
    const { context: c } = this
    const { view, width, timeline } = scene
    if (!timeline.extra.stepsRecorded) {
      c.fillStyle = scene.dark ? '#9aa6b2' : '#5b6672'
      c.fillText('none marked in the recording', GUTTER + 4, RULER + STEPS / 2)
      return
    }
    const plot = width - GUTTER
    const { step_start, step_end, step_number, step_steady } = timeline.columns
    let free = -Infinity
    const labels: { x: number; end: number; number: number; text: string }[] = []
    for (let i = 0; i < step_start.length; i++) {
      const a = GUTTER + xOf(view, plot, step_start[i])
      const b = GUTTER + xOf(view, plot, step_end[i])
      if (b < GUTTER || a > width || b < free) continue
      free = a + 2
      c.fillStyle = scene.dark ? (step_steady[i] ? '#253447' : '#2b2b2b') : step_steady[i] ? '#dbe8f7' : '#ececec'
      c.fillRect(a, RULER + 2, Math.max(1, b - a - 1), STEPS - 4)
      c.fillStyle = ink
      const regime = timeline.extra.regimes[i] ?? ''
      const text = `#${step_number[i]}${step_steady[i] ? '' : ' *'}${b - a > 170 && regime !== 'undetermined' ? `  ${regime}` : ''}`
      labels.push({ x: Math.max(a, GUTTER) + 4, end: Math.min(b, width), number: step_number[i], text })
    }
    this.stepLabels(labels, ink, scene.width)
    c.strokeStyle = line
  }

  /** Every number where it fits into its step; where they do not, those of every second, fifth, tenth ... step. */
  private stepLabels(
    labels: { x: number; end: number; number: number; text: string }[],
    ink: string,
    width: number,
  ): void {
    const { context: c } = this
    const character = characterWidth(c)
    c.fillStyle = ink
    const fits = labels.filter(({ x, end, text }) => end - x > text.length * character)
    if (fits.length === labels.length) {
      for (const { x, text } of fits) c.fillText(text, x, RULER + STEPS / 2)
      return
    }
    const room = (Math.max(...labels.map(({ number }) => `#${number}`.length)) + 2) * character + 8
    const each = labels.length > 1 ? (labels[labels.length - 1].x - labels[0].x) / (labels.length - 1) : width
    let every = 1
    for (const factor of [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000]) {
      every = factor
      if (factor * Math.max(each, 0.01) >= room) break
    }
    let free = -Infinity
    for (const { x, number } of labels) {
      const text = `#${number}`
      const end = x + text.length * character
      if (number % every !== 0 || x < free || end > width) continue
      c.fillText(text, x, RULER + STEPS / 2)
      free = end + 6
    }
  }

  private causeWords(scene: Scene): void {
    const { context: c } = this
    const { view, width, timeline } = scene
    const plot = width - GUTTER
    const causes = this.causes
    if (!causes) return
    const from = Math.max(0, causes.lowerBound(0, causes.count, view.from) - 1)
    const until = causes.lowerBound(0, causes.count, view.to)
    // Words only where few enough intervals are on screen to have room for them.
    if (until - from > 400) return
    for (let i = from; i < until; i++) {
      const a = Math.max(GUTTER, GUTTER + xOf(view, plot, causes.start[i]))
      const b = Math.min(width, GUTTER + xOf(view, plot, causes.end(i)))
      const name = timeline.extra.classes[timeline.columns.cause[i]]
      const words = `${CLASS_WORDS[name]?.label ?? name} ${formatTime(causes.duration[i])}`
      const room = words.length * characterWidth(c) + 6
      if (b - a < room + 6) continue
      c.fillStyle = 'rgb(255 255 255 / 80%)'
      c.fillRect(a + 4, RULER + STEPS + 5, room, CAUSES - 10)
      c.fillStyle = '#10151a'
      c.fillText(words, a + 7, RULER + STEPS + CAUSES / 2)
    }
  }
}

/** Where a slice is drawn, px. */
export interface Box {
  x: number
  y: number
  width: number
  height: number
  pinned: boolean
}

export function boxOf(
  scene: Pick<Scene, 'timeline' | 'layout' | 'view' | 'scroll' | 'width'>,
  slice: SliceRef,
): Box | null {
  let at = scene.layout.bandOfRow[slice.row]
  if (at === undefined) return null
  // A folded lane is represented by its first row.
  if (at < 0) at = scene.layout.bandOfRow[scene.timeline.laneRows[scene.timeline.rows[slice.row].lane].first]
  const band = scene.layout.bands[at]
  if (!band) return null
  const plot = scene.width - GUTTER
  const a = GUTTER + xOf(scene.view, plot, slice.start)
  const b = GUTTER + xOf(scene.view, plot, slice.start + slice.duration)
  return {
    x: a,
    y: topOf(scene.layout, band, scene.scroll),
    width: Math.max(1, b - a),
    height: band.height,
    pinned: isPinned(scene.layout, band),
  }
}

const coloursOf = (dark: boolean) =>
  dark
    ? { ink: INK.dark, dim: '#9aa6b2', line: '#2a323b', back: BACKGROUND.dark }
    : { ink: INK.light, dim: '#5b6672', line: '#e3e7ec', back: BACKGROUND.light }

const clip = (text: string, most: number): string =>
  clean(text.length <= most ? text : `${text.slice(0, most - 1)}…`, 80)

function pale(pixel: number, background: number): number {
  const channel = (shift: number) => {
    const a = (pixel >>> shift) & 255
    const b = (background >>> shift) & 255
    return Math.round(a * 0.22 + b * 0.78) << shift
  }
  return (0xff000000 | channel(16) | channel(8) | channel(0)) >>> 0
}
