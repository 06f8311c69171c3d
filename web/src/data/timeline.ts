// The timeline as typed arrays: slices sorted by row and start, so that what is visible is found by binary search.

import type { Block, Column } from './unpack'

export interface Lane {
  label: string
  side: 'device' | 'host' | 'none'
  process: string
  thread: string
  events: number
  steps: boolean
}

export interface ArgTable {
  columns: string[]
  rows: (string | number | null)[][]
  omitted: number
  units: string[]
  meanings: string[]
}

export interface SeriesInfo {
  key: string
  label: string
  type: string
  points: number
  total: number
}

export interface TimelineExtra {
  span: [number, number]
  lanes: Lane[]
  kinds: string[]
  classes: string[]
  families: string[]
  device: string
  regimes: string[]
  stepsRecorded: boolean
  series: SeriesInfo[]
  seriesOmitted: number
  baseNs: string
  names?: { text: string[]; short: Record<string, string> }
  args?: Record<string, ArgTable>
  omitted?: Record<string, number>
  total?: number
  /** Position of the slice of each event that a finding names. */
  places?: Record<string, number>
  /** How many events each finding is about. */
  marked?: Record<string, number>
  /** Kinds of events, families of kernels, and whether calls wait: in the whole trace, whatever of it is here. */
  shown: { kinds: number[]; families: number[]; waits: boolean }
}

/** One level of nesting of one lane. */
export interface Row {
  lane: number
  depth: number
  first: number
  end: number
}

export interface Series {
  info: SeriesInfo
  time: Column
  value: Column
  low: number
  high: number
}

/** Indices into the kinds of the trace schema. */
export const KIND = {
  ANNOTATION: 0,
  OPERATOR: 1,
  PYTHON: 2,
  RUNTIME: 3,
  DRIVER: 4,
  SYNC: 5,
  KERNEL: 7,
  MEMCPY: 8,
  MEMSET: 9,
  GPU_ANNOTATION: 10,
}

const GROUP = 8

/** Position of the first value of a sorted list, between `from` and `to`, that is not below `value`. */
export function lowerBound(sorted: ArrayLike<number>, value: number, from = 0, to = sorted.length): number {
  let low = from
  let high = to
  while (low < high) {
    const middle = (low + high) >>> 1
    if (sorted[middle] < value) low = middle + 1
    else high = middle
  }
  return low
}

/** Slices of some rows with what drawing many of them at once needs. */
export class Slices {
  readonly count: number
  /** Sum of the durations before each slice. */
  readonly before: Float64Array
  /** Per group of GROUP^(level+1) slices the position of its longest one. */
  private readonly longestOf: Uint32Array[] = []

  constructor(
    readonly start: Float64Array | Column,
    readonly duration: Column,
    readonly name: Column,
    readonly kind: Column,
  ) {
    const n = start.length
    this.count = n
    this.before = new Float64Array(n + 1)
    for (let i = 0; i < n; i++) this.before[i + 1] = this.before[i] + duration[i]
    for (let size = n; size > 1; ) {
      const below = this.longestOf.at(-1)
      const groups = Math.ceil(size / GROUP)
      const level = new Uint32Array(groups)
      for (let g = 0; g < groups; g++) {
        const end = Math.min(size, (g + 1) * GROUP)
        let best = below ? below[g * GROUP] : g * GROUP
        for (let i = g * GROUP + 1; i < end; i++) {
          const at = below ? below[i] : i
          if (duration[at] > duration[best]) best = at
        }
        level[g] = best
      }
      this.longestOf.push(level)
      size = groups
    }
  }

  end(i: number): number {
    return this.start[i] + this.duration[i]
  }

  /** First position in [from, to) that starts at or after `time`. */
  lowerBound(from: number, to: number, time: number): number {
    return lowerBound(this.start, time, from, to)
  }

  /** The same, faster where the answer is near `from`. */
  gallop(from: number, to: number, time: number): number {
    let step = 1
    while (from + step < to && this.start[from + step] < time) step <<= 1
    return this.lowerBound(from + (step >> 1), Math.min(to, from + step + 1), time)
  }

  /** Position of the longest slice in [from, to); from < to. */
  longest(from: number, to: number): number {
    let best = from
    let low = from
    const consider = (at: number) => {
      if (this.duration[at] > this.duration[best]) best = at
    }
    while (low < to) {
      let level = -1
      let size = 1
      while (low % (size * GROUP) === 0 && low + size * GROUP <= to && level + 1 < this.longestOf.length) {
        size *= GROUP
        level++
      }
      consider(level < 0 ? low : this.longestOf[level][low / size])
      low += size
    }
    return best
  }
}

export class Timeline {
  readonly slices: Slices
  readonly rows: Row[] = []
  /** First row of each lane and number of rows, by lane. */
  readonly laneRows: { first: number; count: number }[] = []
  readonly series: Series[] = []
  readonly names: string[]
  private readonly shortNames: Record<string, string>
  /** Calls that wait for the device, by slice. */
  readonly waits: Uint8Array
  private lower: string[] | null = null
  private rowOfName: Map<string, number> | null = null

  constructor(
    readonly columns: Record<string, Column>,
    readonly extra: TimelineExtra,
  ) {
    const c = columns
    const none = new Float64Array(0)
    this.slices = new Slices(c.start ?? none, c.duration ?? none, c.name ?? none, c.kind ?? none)
    for (let i = 0; i < c.row_lane.length; i++)
      this.rows.push({
        lane: c.row_lane[i],
        depth: c.row_depth[i],
        first: c.row_first[i],
        end: c.row_first[i] + c.row_count[i],
      })
    for (let lane = 0; lane < extra.lanes.length; lane++) this.laneRows.push({ first: -1, count: 0 })
    this.rows.forEach((row, i) => {
      const of = this.laneRows[row.lane]
      if (of.first < 0) of.first = i
      of.count = i - of.first + 1
    })
    for (const info of extra.series) {
      const value = c[`value:${info.key}`]
      let low = 0
      let high = 0
      for (let i = 0; i < value.length; i++) {
        if (value[i] < low) low = value[i]
        if (value[i] > high) high = value[i]
      }
      this.series.push({ info, time: c[`time:${info.key}`], value, low, high })
    }
    this.waits = new Uint8Array(this.slices.count)
    for (let i = 0; c.waiting && i < c.waiting.length; i++) this.waits[c.waiting[i]] = 1
    this.names = extra.names?.text ?? []
    this.shortNames = extra.names?.short ?? {}
  }

  static from(block: Block<TimelineExtra>): Timeline {
    return new Timeline(block.columns, block.extra)
  }

  /** Name as recorded. */
  nameOf(slice: number): string {
    return this.names[this.slices.name[slice]] ?? ''
  }

  /** Name to show where there is little room. */
  shortOf(slice: number): string {
    const row = this.slices.name[slice]
    return this.shortNames[row] ?? this.names[row] ?? ''
  }

  /** Short form of a recorded name, if it has one. */
  shortOfName(name: string): string | undefined {
    this.rowOfName ??= new Map(this.names.map((text, row) => [text, row]))
    const row = this.rowOfName.get(name)
    return row === undefined ? undefined : this.shortNames[row]
  }

  shortName(nameRow: number): string {
    return this.shortNames[nameRow] ?? this.names[nameRow] ?? ''
  }

  /** Row that holds a slice. */
  rowOf(slice: number): number {
    let low = 0
    let high = this.rows.length - 1
    while (low < high) {
      const middle = (low + high + 1) >>> 1
      if (this.rows[middle].first <= slice) low = middle
      else high = middle - 1
    }
    return low
  }

  /** The slice of a row that is open at a time, or the nearest one within `slack`, or -1. */
  at(rowIndex: number, time: number, slack = 0): number {
    const row = this.rows[rowIndex]
    if (!row) return -1
    const after = this.slices.lowerBound(row.first, row.end, time)
    // Device slices of one stream may overlap a little: the latest that began is the one on top.
    for (let i = after - 1; i >= Math.max(row.first, after - 4); i--) if (this.slices.end(i) >= time) return i
    const gapAfter = after < row.end ? this.slices.start[after] - time : Infinity
    const gapBefore = after > row.first ? time - this.slices.end(after - 1) : Infinity
    if (Math.min(gapAfter, gapBefore) > slack) return -1
    return gapAfter <= gapBefore ? after : after - 1
  }

  /** Slices around one, outermost first. */
  ancestors(slice: number): number[] {
    const rowIndex = this.rowOf(slice)
    const row = this.rows[rowIndex]
    const middle = this.slices.start[slice] + this.slices.duration[slice] / 2
    const found: number[] = []
    for (let i = this.laneRows[row.lane].first; i < rowIndex; i++) {
      const at = this.at(i, middle)
      if (at >= 0) found.push(at)
    }
    return found
  }

  /** Time of a slice that is not covered by what is directly inside it. */
  selfTime(slice: number): number {
    const rowIndex = this.rowOf(slice)
    const below = this.rows[rowIndex + 1]
    if (!below || below.lane !== this.rows[rowIndex].lane) return this.slices.duration[slice]
    const { start } = this.slices
    const end = this.slices.end(slice)
    const from = this.slices.lowerBound(below.first, below.end, start[slice])
    const to = this.slices.lowerBound(from, below.end, end)
    return Math.max(0, this.slices.duration[slice] - (this.slices.before[to] - this.slices.before[from]))
  }

  /** Launch of a device slice, or -1. */
  launchOf(slice: number): number {
    const at = find(this.columns.device, slice)
    return at < 0 ? -1 : this.columns.launch[at]
  }

  /** Device slices that a host slice, or anything inside it, launched; the first `limit` of them and their number. */
  launchedBy(slice: number, limit = 200): { slices: number[]; total: number } {
    const { device, launch } = this.columns
    const found: number[] = []
    let total = 0
    if (!device) return { slices: found, total }
    const row = this.rows[this.rowOf(slice)]
    const lane = this.laneRows[row.lane]
    const low = this.rows[lane.first].first
    const high = this.rows[lane.first + lane.count - 1].end
    const from = this.slices.start[slice]
    const to = this.slices.end(slice)
    for (let i = 0; i < device.length; i++) {
      const call = launch[i]
      if (call < low || call >= high || this.slices.start[call] < from || this.slices.start[call] >= to) continue
      total++
      if (found.length < limit) found.push(device[i])
    }
    return { slices: found, total }
  }

  /** Forward operator of a backward one, or -1. */
  forwardOf(slice: number): number {
    const at = find(this.columns.backward, slice)
    return at < 0 ? -1 : this.columns.forward[at]
  }

  /** Backward operators of a forward one. */
  backwardOf(slice: number): number[] {
    const { forward, backward } = this.columns
    const found: number[] = []
    for (let i = 0; forward && i < forward.length; i++) if (forward[i] === slice) found.push(backward[i])
    return found
  }

  /** Arguments of a slice: name, value, unit and meaning. */
  argsOf(slice: number): { name: string; value: string | number; unit: string; meaning: string }[] {
    const found: { name: string; value: string | number; unit: string; meaning: string }[] = []
    for (const [table, info] of Object.entries(this.extra.args ?? {})) {
      const at = find(this.columns[`event:${table}`], slice)
      if (at < 0) continue
      const values = info.rows[this.columns[`args:${table}`][at]]
      info.columns.forEach((name, i) => {
        const value = values?.[i]
        if (value !== null && value !== undefined)
          found.push({ name, value, unit: info.units[i], meaning: info.meanings[i] })
      })
    }
    return found
  }

  /** Slices whose name contains a text, regardless of case: the first `limit` of them, and their number. */
  search(text: string, limit = 5000): { slices: number[]; total: number } {
    const needle = text.toLowerCase()
    const found: number[] = []
    let total = 0
    if (!needle) return { slices: found, total }
    this.lower ??= this.names.map((name) => name.toLowerCase())
    const wanted = new Uint8Array(this.names.length)
    let any = false
    this.lower.forEach((name, i) => {
      if (name.includes(needle)) {
        wanted[i] = 1
        any = true
      }
    })
    if (!any) return { slices: found, total }
    const { name, count } = this.slices
    for (let i = 0; i < count; i++) {
      if (!wanted[name[i]]) continue
      total++
      if (found.length < limit) found.push(i)
    }
    return { slices: found, total }
  }

  /** Index of the step whose device window (or host window, by `host`) holds a time, or -1. */
  stepAt(time: number, host: boolean): number {
    const from = host ? this.columns.step_start : this.columns.window_start
    const to = host ? this.columns.step_end : this.columns.window_end
    for (let i = from.length - 1; i >= 0; i--) if (from[i] <= time && time < to[i]) return i
    return -1
  }
}

/** Index of a value in a sorted column, or -1. */
export function find(sorted: Column | undefined, value: number): number {
  if (!sorted) return -1
  let low = 0
  let high = sorted.length
  while (low < high) {
    const middle = (low + high) >>> 1
    if (sorted[middle] < value) low = middle + 1
    else high = middle
  }
  return low < sorted.length && sorted[low] === value ? low : -1
}

export const isDevice = (kind: number): boolean => kind === KIND.KERNEL || kind === KIND.MEMCPY || kind === KIND.MEMSET
