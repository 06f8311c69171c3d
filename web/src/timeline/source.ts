// Where slices come from: the page itself, or the local server, a window at a time. Both answer the same questions.

import { fetchBlock } from '../data/load'
import { lowerBound, Timeline, type TimelineExtra } from '../data/timeline'
import type { Column } from '../data/unpack'
import { type Details, detailsOf, type Measured, measure, refOf, type SliceRef } from './details'
import { type Marks, marksIn, marksOf } from './marks'
import { perPixel, type Viewport } from './viewport'

export interface Found {
  slices: SliceRef[]
  total: number
  /** Which names match, for paling the others. */
  names: Uint8Array
}

export interface Source {
  /** Lanes, steps, causes and curves; the same for every view. */
  readonly base: Timeline
  /** What to draw now; may change after `want`. */
  readonly current: Timeline
  want(view: Viewport, width: number): void
  details(slice: SliceRef): Promise<Details | null>
  measure(from: number, to: number): Promise<Measured>
  search(text: string): Promise<Found>
  /** The slice that an address names. */
  byId(id: number): Promise<SliceRef | null>
  /** The slice of an event that a finding names. */
  ofEvent(event: number): Promise<SliceRef | null>
  /** All events of a finding; null for one that names none. */
  marks(code: string): Promise<Marks | null>
}

export class InPage implements Source {
  readonly current: Timeline
  constructor(
    readonly base: Timeline,
    private readonly places: Record<string, number>,
  ) {
    this.current = base
  }

  want(): void {}

  async details(slice: SliceRef): Promise<Details | null> {
    return slice.id < this.base.slices.count ? detailsOf(this.base, slice.id) : null
  }

  async measure(from: number, to: number): Promise<Measured> {
    return measure(this.base, from, to)
  }

  async search(text: string): Promise<Found> {
    const { slices, total } = this.base.search(text)
    return { slices: slices.map((slice) => refOf(this.base, slice)), total, names: matching(this.base.names, text) }
  }

  async byId(id: number): Promise<SliceRef | null> {
    return id < this.base.slices.count ? refOf(this.base, id) : null
  }

  async ofEvent(event: number): Promise<SliceRef | null> {
    const slice = this.places[event]
    return slice === undefined || slice < 0 ? null : refOf(this.base, slice)
  }

  async marks(code: string): Promise<Marks | null> {
    return marksIn(this.base, code)
  }
}

/** Columns of a window, as wide as this many screens. */
const SCREENS = 3

export class Remote implements Source {
  current: Timeline
  private loaded: { view: Viewport; pixel: number } | null = null
  private asked: { view: Viewport; pixel: number } | null = null
  private busy = false

  constructor(
    readonly base: Timeline,
    private readonly server: string,
    private readonly changed: () => void,
    private readonly failed: (error: unknown) => void,
  ) {
    this.current = base
  }

  /** Asks for the window around a view if what is there does not cover it, or is too coarse. One request at a time. */
  want(view: Viewport, width: number): void {
    const pixel = perPixel(view, width)
    const { loaded } = this
    const enough = loaded && loaded.view.from <= view.from && loaded.view.to >= view.to && loaded.pixel <= pixel * 1.01
    if (enough && loaded.pixel > pixel / 16) return
    this.asked = { view, pixel }
    if (!this.busy) void this.fetch()
  }

  private async fetch(): Promise<void> {
    this.busy = true
    try {
      for (let next = this.asked; next; next = this.asked) {
        this.asked = null
        const length = (next.view.to - next.view.from) * SCREENS
        const middle = (next.view.from + next.view.to) / 2
        const from = Math.max(0, Math.floor(middle - length / 2))
        const to = Math.ceil(middle + length / 2)
        const pixel = next.pixel / 2
        const block = await fetchBlock<TimelineExtra>(`${this.server}/slices?from=${from}&to=${to}&pixel=${pixel}`)
        const { base } = this
        this.current = new Timeline({ ...base.columns, ...block.columns, ...curvesOf(base, block.columns) }, base.extra)
        // A curve is as high as its highest point anywhere.
        this.current.series.forEach((series, i) => {
          series.low = base.series[i].low
          series.high = base.series[i].high
        })
        this.loaded = { view: { from: middle - length / 2, to: middle + length / 2 }, pixel }
        this.changed()
      }
    } catch (error) {
      this.failed(error)
    } finally {
      this.busy = false
    }
  }

  async details(slice: SliceRef): Promise<Details | null> {
    return this.json<Details>(`details?event=${slice.id}`)
  }

  async measure(from: number, to: number): Promise<Measured> {
    return this.json<Measured>(`measure?from=${Math.round(from)}&to=${Math.round(to)}`)
  }

  async search(text: string): Promise<Found> {
    const found = await this.json<{ slices: SliceRef[]; total: number }>(`search?text=${encodeURIComponent(text)}`)
    return { ...found, names: matching(this.base.names, text) }
  }

  async byId(id: number): Promise<SliceRef | null> {
    return this.ofEvent(id)
  }

  async ofEvent(event: number): Promise<SliceRef | null> {
    if (event < 0) return null
    return (await this.json<Details>(`details?event=${event}`))?.slice ?? null
  }

  async marks(code: string): Promise<Marks | null> {
    const block = await fetchBlock<{ total: number }>(`${this.server}/marked?code=${encodeURIComponent(code)}`)
    return block.extra.total ? marksOf(block) : null
  }

  private async json<T>(path: string): Promise<T> {
    const response = await fetch(`${this.server}/${path}`)
    if (!response.ok) throw new Error(`${path.split('?')[0]}: ${response.status}`)
    return (await response.json()) as T
  }
}

/** The curves of the whole, with what a window knows more exactly in its place. */
function curvesOf(base: Timeline, window: Record<string, Column>): Record<string, Column> {
  const columns: Record<string, Column> = {}
  for (const { info, time, value } of base.series) {
    const [times, values] = [window[`time:${info.key}`], window[`value:${info.key}`]]
    if (!times || times.length === 0) continue
    const before = lowerBound(time, times[0])
    const after = lowerBound(time, times[times.length - 1] + 1)
    columns[`time:${info.key}`] = spliced(time, times, before, after)
    columns[`value:${info.key}`] = spliced(value, values, before, after)
  }
  return columns
}

function spliced(whole: Column, part: Column, before: number, after: number): Float64Array {
  const all = new Float64Array(before + part.length + whole.length - after)
  all.set(whole.subarray(0, before))
  all.set(part, before)
  all.set(whole.subarray(after), before + part.length)
  return all
}

function matching(names: string[], text: string): Uint8Array {
  const needle = text.toLowerCase()
  return Uint8Array.from(names, (name) => (name.toLowerCase().includes(needle) ? 1 : 0))
}
