// Turns gestures and keys into a view, a selection and a measured stretch, and draws a frame when one of them changes.

import { signal } from '@preact/signals'
import type { Place } from '../data/report'
import type { Timeline } from '../data/timeline'
import { formatQuantity } from '../format'
import { type Cause, causeAt, type Details, type Measured, readable, refOf, type SliceRef } from './details'
import { bandUnder, initiallyFolded, type Layout, layoutOf, RULER, STEPS, STICKY, topOf } from './layout'
import type { Marks } from './marks'
import { type Box, boxOf, GUTTER, Painter, PIN, type Scene } from './painter'
import type { Found, Source } from './source'
import { around, panned, perPixel, timeOf, type Viewport, within, xOf, zoomed } from './viewport'

export interface Hover {
  x: number
  y: number
  width: number
  height: number
  slice: SliceRef | null
  /** Of the slice, to outline it. */
  box: Box | null
  others: number
  args: { name: string; text: string }[]
  cause: Cause | null
  text: string
}

type Gesture =
  | { kind: 'pan'; x: number; y: number; view: Viewport; scroll: number; moved: boolean }
  | { kind: 'range'; from: number }
  | { kind: 'pinch'; distance: number; middle: number; view: Viewport }

const KEYS_PER_SECOND = 60

/** Pinned lanes leave this share of the picture to the others. */
const PINNED_SHARE = 0.6

export class Controller {
  readonly hover = signal<Hover | null>(null)
  readonly selected = signal<Details | null>(null)
  readonly measured = signal<Measured | null>(null)
  readonly found = signal<Found | null>(null)
  readonly matchIndex = signal(-1)
  readonly place = signal(0)
  /** The events of the finding that is shown. */
  readonly marks = signal<Marks | null>(null)
  /** Lanes that do not scroll, by index. */
  readonly pinned = signal<ReadonlySet<number>>(new Set())

  private canvas: HTMLCanvasElement | null = null
  private painter: Painter | null = null
  private view: Viewport
  private readonly span: Viewport
  private scroll = 0
  private layout: Layout
  private folded: Set<number>
  private range: [number, number] | null = null
  private marked: [number, number] | null = null
  private named: SliceRef | null = null
  private gesture: Gesture | null = null
  private pointers = new Map<number, { x: number; y: number }>()
  private pressed = new Set<string>()
  private pointerX = 0
  private pointerY = 0
  /** What the hover card was made from: once any of it is another, the card is made again. */
  private hoverFor: [Viewport, number, Timeline, Layout] | null = null
  private frame = 0
  private lastKeyFrame = 0
  private isDark = false
  private noteTimer = 0
  private searchTurn = 0
  private partner: { other: Controller; offset: number } | null = null

  constructor(
    private readonly source: Source,
    private readonly onView: (view: Viewport) => void,
  ) {
    const [from, to] = source.base.extra.span
    this.span = { from, to }
    this.view = around(from, to, this.span, 0.04)
    this.folded = initiallyFolded(source.base)
    this.layout = this.arranged()
  }

  // -- what the view calls -------------------------------------------------------------------------------------------

  /** Shows the same stretch as another timeline, whose times are `offset` later. */
  lock(other: Controller, offset: number): void {
    this.partner = { other, offset }
    other.partner = { other: this, offset: -offset }
  }

  attach(canvas: HTMLCanvasElement, focusSearch: () => void, focus = true): () => void {
    this.canvas = canvas
    this.painter = new Painter(canvas)
    const stop = new AbortController()
    const on = <K extends keyof HTMLElementEventMap>(
      type: K,
      listener: (event: HTMLElementEventMap[K]) => void,
      passive = true,
    ) => canvas.addEventListener(type, listener, { signal: stop.signal, passive })
    on('wheel', (event) => this.wheel(event), false)
    on('pointerdown', (event) => this.down(event))
    on('pointermove', (event) => this.move(event))
    on('pointerup', (event) => this.up(event))
    on('pointercancel', (event) => this.up(event))
    on('pointerleave', () => this.setHover(null))
    on('dblclick', (event) => this.doubleClick(event))
    on('keydown', (event) => this.keyDown(event, focusSearch), false)
    on('keyup', (event) => this.pressed.delete(event.key.toLowerCase()))
    on('blur', () => this.pressed.clear())
    const resize = new ResizeObserver(() => (this.pinned.peek().size ? this.relayout() : this.draw()))
    resize.observe(canvas)
    if (focus) canvas.focus({ preventScroll: true })
    this.draw()
    return () => {
      stop.abort()
      resize.disconnect()
      cancelAnimationFrame(this.frame)
      clearTimeout(this.noteTimer)
      this.frame = 0
      this.canvas = null
    }
  }

  setDark(value: boolean): void {
    this.isDark = value
    this.draw()
  }

  show(from: number, to: number): void {
    this.setView(within({ from, to: Math.max(to, from + 1) }, this.span), false)
  }

  showAll(): void {
    this.setView(around(this.span.from, this.span.to, this.span, 0.04))
  }

  zoomBy(factor: number): void {
    this.setView(zoomed(this.view, factor, (this.view.from + this.view.to) / 2, this.span))
  }

  foldAll(): void {
    const lanes = this.source.base.extra.lanes.map((_, i) => i)
    const foldable = lanes.filter((lane) => this.source.base.laneRows[lane].count > 1)
    const all = foldable.every((lane) => this.folded.has(lane))
    this.folded = new Set(all ? [] : foldable)
    this.relayout()
  }

  /** Pins all lanes of devices, or lets everything scroll again. */
  pinDevices(): void {
    const { lanes } = this.source.base.extra
    const devices = lanes.flatMap((lane, i) => (lane.side === 'device' ? [i] : []))
    this.pinned.value = new Set(this.pinned.peek().size ? [] : devices)
    this.relayout()
  }

  private pin(lane: number): void {
    const pinned = new Set(this.pinned.peek())
    if (!pinned.delete(lane)) pinned.add(lane)
    this.pinned.value = pinned
    this.relayout()
  }

  /** Marks every event of a finding; of none for ''. */
  async mark(code: string): Promise<void> {
    this.marks.value = null
    const marks = code ? await this.source.marks(code).catch(() => null) : null
    this.marks.value = marks
    this.draw()
  }

  async showPlace(place: Place, index: number): Promise<void> {
    this.place.value = index
    this.selected.value = null
    this.measured.value = null
    this.range = null
    this.marked = [place.start_ns, place.end_ns]
    this.setView(around(place.start_ns, place.end_ns, this.span), false)
    const slice = await this.source.ofEvent(place.event)
    if (slice && place.events > 0) {
      this.named = slice
      this.reveal(slice)
    }
    this.draw()
  }

  async select(slice: SliceRef, reveal = false): Promise<void> {
    this.measured.value = null
    this.range = null
    if (reveal) {
      this.reveal(slice)
      const visible = slice.start < this.view.to && slice.start + slice.duration > this.view.from
      const wide = xOf(this.view, this.plot(), slice.start + slice.duration) - xOf(this.view, this.plot(), slice.start)
      if (!visible || wide < 4) this.setView(around(slice.start, slice.start + slice.duration, this.span, 12))
    }
    try {
      this.selected.value = await this.source.details(slice)
    } catch {
      this.selected.value = null
    }
    this.noteSoon()
    this.draw()
  }

  clear(): void {
    this.selected.value = null
    this.measured.value = null
    this.range = null
    this.named = null
    this.noteSoon()
    this.draw()
  }

  /** Selects what an address names; shows it unless the address says what to show. */
  async selectId(id: number, reveal: boolean): Promise<void> {
    const slice = await this.source.byId(id).catch(() => null)
    if (slice) await this.select(slice, reveal)
  }

  async search(text: string): Promise<void> {
    const turn = ++this.searchTurn
    const found = text.trim() ? await this.source.search(text.trim()) : null
    if (turn !== this.searchTurn) return
    this.found.value = found
    this.matchIndex.value = -1
    this.draw()
  }

  nextMatch(by: number): void {
    const found = this.found.value
    if (!found || found.slices.length === 0) return
    const count = found.slices.length
    this.matchIndex.value = (this.matchIndex.value + by + count) % count
    void this.select(found.slices[this.matchIndex.value], true)
  }

  // -- drawing -------------------------------------------------------------------------------------------------------

  draw(): void {
    if (!this.frame && this.canvas) this.frame = requestAnimationFrame((now) => this.onFrame(now))
  }

  private onFrame(now: number): void {
    this.frame = 0
    const { canvas, painter } = this
    if (!canvas || !painter) return
    this.heldKeys(now)
    this.keepHover()
    const scene = this.scene()
    if (scene.width < 2 || scene.height < 2) return
    this.source.want(this.view, this.plot())
    painter.paint(scene)
  }

  /** The card says what is under the pointer, also when the picture moved and the pointer did not. */
  private keepHover(): void {
    const made = this.hoverFor
    if (!made || !this.hover.peek()) return
    const now = [this.view, this.scroll, this.source.current, this.layout] as const
    if (now.some((value, i) => value !== made[i])) this.setHover(this.hoverAt(this.pointerX, this.pointerY))
  }

  private scene(): Scene {
    const canvas = this.canvas as HTMLCanvasElement
    return {
      timeline: this.source.current,
      layout: this.layout,
      view: this.view,
      scroll: this.scroll,
      width: canvas.clientWidth,
      height: canvas.clientHeight,
      dark: this.isDark,
      selected: this.selected.peek(),
      named: this.named,
      marks: this.marks.peek(),
      range: this.range,
      marked: this.marked,
      found: this.found.peek()?.names ?? null,
      folded: this.folded,
    }
  }

  private plot(): number {
    return Math.max(1, (this.canvas?.clientWidth ?? 1000) - GUTTER)
  }

  private setView(view: Viewport, noted = true): void {
    this.view = view
    this.draw()
    if (this.partner) {
      const { other, offset } = this.partner
      other.view = { from: view.from + offset, to: view.to + offset }
      other.draw()
    }
    if (noted) this.noteSoon()
  }

  private noteSoon(): void {
    clearTimeout(this.noteTimer)
    this.noteTimer = window.setTimeout(() => this.onView(this.view), 400)
  }

  private setScroll(scroll: number): void {
    const room = (this.canvas?.clientHeight ?? 0) - STICKY
    this.scroll = Math.max(0, Math.min(scroll, Math.max(0, this.layout.height - room + 12)))
    this.draw()
  }

  private relayout(): void {
    this.layout = this.arranged()
    this.setScroll(this.scroll)
  }

  private arranged(): Layout {
    const room = ((this.canvas?.clientHeight ?? 0) - STICKY) * PINNED_SHARE
    return layoutOf(this.source.base, { folded: this.folded, pinned: this.pinned.peek(), room })
  }

  private reveal(slice: SliceRef): void {
    const lane = this.source.base.rows[slice.row]?.lane
    if (lane !== undefined && this.folded.delete(lane)) this.relayout()
    const band = this.layout.bands[this.layout.bandOfRow[slice.row]]
    if (!band || !this.canvas) return
    const top = topOf(this.layout, band, this.scroll) - STICKY
    const { pinned } = this.layout
    const room = this.canvas.clientHeight - STICKY
    if (band.y < pinned || (top >= pinned && top + band.height <= room)) return
    this.setScroll(band.y - pinned - (room - pinned) / 3)
  }

  // -- gestures ------------------------------------------------------------------------------------------------------

  private wheel(event: WheelEvent): void {
    event.preventDefault()
    const unit = event.deltaMode === 1 ? 16 : event.deltaMode === 2 ? 400 : 1
    const at = timeOf(this.view, this.plot(), event.offsetX - GUTTER)
    if (event.ctrlKey || event.metaKey)
      this.setView(zoomed(this.view, Math.exp(event.deltaY * unit * 0.003), at, this.span))
    else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      const by = (event.shiftKey ? event.deltaY || event.deltaX : event.deltaX) * unit
      this.setView(panned(this.view, by * perPixel(this.view, this.plot()), this.span))
    } else this.setScroll(this.scroll + event.deltaY * unit)
  }

  private down(event: PointerEvent): void {
    const { offsetX: x, offsetY: y } = event
    this.pointers.set(event.pointerId, { x, y })
    this.canvas?.setPointerCapture(event.pointerId)
    if (this.pointers.size === 2) {
      const [a, b] = [...this.pointers.values()]
      const middle = (a.x + b.x) / 2
      this.gesture = { kind: 'pinch', distance: Math.max(10, Math.abs(a.x - b.x)), middle, view: this.view }
      return
    }
    if (event.button !== 0) return
    if (x < GUTTER) {
      const band = y > STICKY ? bandUnder(this.layout, y, this.scroll) : undefined
      if (band?.kind !== 'row') return
      if (x >= GUTTER - PIN && band.first) this.pin(band.lane)
      else this.fold(band.lane)
      return
    }
    if (event.shiftKey || y < RULER) this.gesture = { kind: 'range', from: timeOf(this.view, this.plot(), x - GUTTER) }
    else this.gesture = { kind: 'pan', x, y, view: this.view, scroll: this.scroll, moved: false }
  }

  private fold(lane: number): void {
    if (this.source.base.laneRows[lane].count < 2) return
    if (!this.folded.delete(lane)) this.folded.add(lane)
    this.relayout()
  }

  private move(event: PointerEvent): void {
    const { offsetX: x, offsetY: y } = event
    this.pointerX = x
    this.pointerY = y
    if (this.pointers.has(event.pointerId)) this.pointers.set(event.pointerId, { x, y })
    const { gesture } = this
    if (!gesture) {
      this.setHover(this.hoverAt(x, y))
      return
    }
    this.setHover(null)
    if (gesture.kind === 'pan') {
      if (Math.abs(x - gesture.x) + Math.abs(y - gesture.y) > 4) gesture.moved = true
      if (!gesture.moved) return
      this.setView(panned(gesture.view, (gesture.x - x) * perPixel(gesture.view, this.plot()), this.span))
      this.setScroll(gesture.scroll + gesture.y - y)
    } else if (gesture.kind === 'range') {
      const at = timeOf(this.view, this.plot(), x - GUTTER)
      this.range = [Math.max(0, Math.min(gesture.from, at)), Math.max(gesture.from, at)]
      this.draw()
    } else if (this.pointers.size === 2) {
      const [a, b] = [...this.pointers.values()]
      const factor = gesture.distance / Math.max(10, Math.abs(a.x - b.x))
      const at = timeOf(gesture.view, this.plot(), gesture.middle - GUTTER)
      const view = zoomed(gesture.view, factor, at, this.span)
      const by = (gesture.middle - (a.x + b.x) / 2) * perPixel(view, this.plot())
      this.setView(panned(view, by, this.span))
    }
  }

  private up(event: PointerEvent): void {
    this.pointers.delete(event.pointerId)
    const { gesture } = this
    this.gesture = null
    if (gesture?.kind === 'range' && this.range) {
      if (this.range[1] - this.range[0] > perPixel(this.view, this.plot()) * 3) void this.measureRange()
      else this.range = null
    } else if (gesture?.kind === 'pan' && !gesture.moved) {
      const slice = this.hoverAt(event.offsetX, event.offsetY)?.slice
      if (slice) void this.select(slice)
      else this.clear()
    }
    this.draw()
  }

  private async measureRange(): Promise<void> {
    const { range } = this
    if (!range) return
    this.selected.value = null
    this.measured.value = await this.source.measure(range[0], range[1])
  }

  private doubleClick(event: MouseEvent): void {
    const slice = this.hoverAt(event.offsetX, event.offsetY)?.slice
    if (slice) this.setView(around(slice.start, slice.start + slice.duration, this.span))
  }

  private setHover(hover: Hover | null): void {
    if (!hover && !this.hover.peek()) return
    this.hover.value = hover
    this.hoverFor = hover && [this.view, this.scroll, this.source.current, this.layout]
  }

  private hoverAt(x: number, y: number): Hover | null {
    const { canvas, source } = this
    if (!canvas) return null
    const { layout, view, scroll } = this
    const [width, height] = [canvas.clientWidth, canvas.clientHeight]
    const none = { x, y, width, height, slice: null, box: null, others: 0, args: [], cause: null, text: '' }
    if (x < GUTTER) {
      const lane = y > STICKY && x >= GUTTER - PIN ? bandUnder(layout, y, scroll) : undefined
      if (lane?.kind !== 'row' || !lane.first) return null
      return { ...none, text: this.pinned.peek().has(lane.lane) ? 'let this lane scroll' : 'keep this lane in sight' }
    }
    const time = timeOf(this.view, this.plot(), x - GUTTER)
    if (y < RULER + STEPS) return null
    if (y < STICKY) {
      const cause = causeAt(source.current, time)
      return cause && { ...none, cause }
    }
    const band = bandUnder(layout, y, scroll)
    if (band?.kind === 'series') {
      const series = source.current.series[band.series]
      let i = -1
      for (let low = 0, high = series.time.length; low < high; ) {
        const middle = (low + high) >>> 1
        if (series.time[middle] <= time) {
          i = middle
          low = middle + 1
        } else high = middle
      }
      const value = i < 0 ? '–' : formatQuantity(series.info.type, series.value[i])
      return { ...none, text: `${series.info.label}: ${value}` }
    }
    if (band?.kind !== 'row') return null
    const { current } = source
    const pixel = perPixel(this.view, this.plot())
    const slice = current.at(band.row, time, pixel * 2)
    if (slice < 0) return null
    const { slices } = current
    // Where many share the pixel, the one that is drawn: the longest.
    const row = current.rows[band.row]
    const first = slices.lowerBound(row.first, row.end, time - pixel / 2)
    const last = slices.lowerBound(first, row.end, time + pixel / 2)
    const shown = last - first > 1 && slices.duration[slice] < pixel ? slices.longest(first, last) : slice
    const merged = current.columns.merged
    const sharing = merged ? merged[shown] : slices.duration[slice] < pixel ? last - first : 1
    const ref = refOf(current, shown)
    return {
      ...none,
      slice: ref,
      box: boxOf({ timeline: current, layout, view, scroll, width }, ref),
      others: Math.max(0, sharing - 1),
      args: readable(current.argsOf(shown)).slice(0, 6),
    }
  }

  // -- keys ----------------------------------------------------------------------------------------------------------

  private keyDown(event: KeyboardEvent, focusSearch: () => void): void {
    if (event.ctrlKey || event.metaKey || event.altKey) return
    const key = event.key.toLowerCase()
    const actions: Record<string, () => void> = {
      '/': focusSearch,
      f: () => this.fit(),
      m: () => this.measureSelection(),
      p: () => this.pinDevices(),
      escape: () => {
        this.marked = null
        this.marks.value = null
        this.clear()
      },
      '+': () => this.zoomBy(0.6),
      '=': () => this.zoomBy(0.6),
      '-': () => this.zoomBy(1.6),
      '0': () => this.showAll(),
      home: () => this.showAll(),
      arrowleft: () => this.walk(-1),
      arrowright: () => this.walk(1),
      arrowup: () => this.climb(true),
      arrowdown: () => this.climb(false),
      pagedown: () => this.setScroll(this.scroll + 300),
      pageup: () => this.setScroll(this.scroll - 300),
    }
    if ('wasd'.includes(key)) {
      this.pressed.add(key)
      this.draw()
    } else if (Object.hasOwn(actions, key)) actions[key]()
    else return
    event.preventDefault()
  }

  /** Held keys move the view a little in every frame, at the same speed however long frames take. */
  private heldKeys(now: number): void {
    if (this.pressed.size === 0) {
      this.lastKeyFrame = 0
      return
    }
    const frames = this.lastKeyFrame ? Math.min(4, ((now - this.lastKeyFrame) / 1000) * KEYS_PER_SECOND) : 1
    this.lastKeyFrame = now
    const length = this.view.to - this.view.from
    let { view } = this
    if (this.pressed.has('a')) view = panned(view, -length * 0.02 * frames, this.span)
    if (this.pressed.has('d')) view = panned(view, length * 0.02 * frames, this.span)
    const x = this.pointerX > GUTTER ? this.pointerX - GUTTER : this.plot() / 2
    const at = timeOf(view, this.plot(), x)
    if (this.pressed.has('w')) view = zoomed(view, 0.96 ** frames, at, this.span)
    if (this.pressed.has('s')) view = zoomed(view, 1.04 ** frames, at, this.span)
    this.setView(view)
  }

  private fit(): void {
    const slice = this.selected.peek()?.slice
    const box = slice && boxOf(this.scene(), slice)
    if (!slice || (box && box.width > this.plot() * 0.6)) this.showAll()
    else this.setView(around(slice.start, slice.start + slice.duration, this.span))
  }

  private measureSelection(): void {
    const slice = this.selected.peek()?.slice
    if (!slice) return
    this.range = [slice.start, slice.start + Math.max(1, slice.duration)]
    void this.measureRange()
  }

  /** To the next or previous slice of the row; without a selection, to the first one on screen. */
  private walk(by: number): void {
    const { current } = this.source
    const slice = this.selected.peek()?.slice
    const row = slice ? current.rows[slice.row] : undefined
    if (!slice || !row) {
      for (const band of this.layout.bands) {
        if (band.kind !== 'row') continue
        const of = current.rows[band.row]
        const at = current.slices.lowerBound(of.first, of.end, this.view.from)
        if (at < of.end && current.slices.start[at] < this.view.to) {
          void this.select(refOf(current, at), true)
          return
        }
      }
      return
    }
    const at = current.slices.lowerBound(row.first, row.end, slice.start) + by
    if (at >= row.first && at < row.end) void this.select(refOf(current, at), true)
  }

  /** To the slice around the selection, or to the first one inside it. */
  private climb(up: boolean): void {
    const { current } = this.source
    const slice = this.selected.peek()?.slice
    if (!slice) {
      this.walk(1)
      return
    }
    const next = slice.row + (up ? -1 : 1)
    const lane = current.rows[slice.row]?.lane
    if (current.rows[next]?.lane !== lane) return
    const row = current.rows[next]
    const at = up
      ? current.at(next, slice.start + slice.duration / 2)
      : current.slices.lowerBound(row.first, row.end, slice.start)
    if (at >= 0 && at < row.end) void this.select(refOf(current, at), true)
  }
}
