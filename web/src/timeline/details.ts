// What is known about one slice, in the words of a hover card; and what a stretch of time holds.

import { isDevice, KIND, type Timeline } from '../data/timeline'
import { formatQuantity } from '../format'

/** A slice as the page refers to it, whether its columns are in the page or on the server. */
export interface SliceRef {
  /** Position in the page's columns, or the event id of a server. */
  id: number
  row: number
  start: number
  duration: number
  name: string
  short: string
  kind: number
}

export interface Argument {
  name: string
  value: string | number
  unit: string
  meaning: string
}

export interface Details {
  slice: SliceRef
  self: number
  waits: boolean
  args: Argument[]
  ancestors: SliceRef[]
  launch: SliceRef | null
  launched: SliceRef[]
  launchedTotal: number
  forward: SliceRef | null
  backward: SliceRef[]
}

export function refOf(timeline: Timeline, slice: number): SliceRef {
  const { start, duration, kind } = timeline.slices
  const ids = timeline.columns.id
  return {
    id: ids ? ids[slice] : slice,
    row: timeline.rowOf(slice),
    start: start[slice],
    duration: duration[slice],
    name: timeline.nameOf(slice),
    short: timeline.shortOf(slice),
    kind: kind[slice],
  }
}

export function detailsOf(timeline: Timeline, slice: number): Details {
  const ref = (at: number) => refOf(timeline, at)
  const kind = timeline.slices.kind[slice]
  const launch = isDevice(kind) ? timeline.launchOf(slice) : -1
  const launched = isDevice(kind) ? { slices: [], total: 0 } : timeline.launchedBy(slice)
  const forward = timeline.forwardOf(slice)
  return {
    slice: ref(slice),
    self: timeline.selfTime(slice),
    waits: timeline.waits[slice] === 1,
    args: timeline.argsOf(slice),
    ancestors: timeline.ancestors(launch >= 0 ? launch : slice).map(ref),
    launch: launch >= 0 ? ref(launch) : null,
    launched: launched.slices.map(ref),
    launchedTotal: launched.total,
    forward: forward >= 0 ? ref(forward) : null,
    backward: kind === KIND.OPERATOR ? timeline.backwardOf(slice).map(ref) : [],
  }
}

const KIND_WORDS: Record<string, [string, string]> = {
  annotation: [
    'a range that the program names',
    'Marked by the program with record_function, or a step of the profiler.',
  ],
  operator: ['an operator', 'A PyTorch function: your code called it, or PyTorch called it for your code.'],
  python: ['a Python call', 'A function or module of the program, or of a library that it called.'],
  runtime: ['a call to the GPU’s runtime', 'Hands work to the GPU, or asks it something.'],
  driver: ['a call to the GPU’s driver', 'Hands work to the GPU, or asks it something, one level lower.'],
  sync: ['a wait between streams', 'One stream of the GPU waits for another one.'],
  overhead: ['work of the profiler', 'Time that the recording itself took.'],
  kernel: ['a kernel', 'One program that the GPU ran.'],
  memcpy: ['a copy', 'Data moved between the host and the GPU, or within it.'],
  memset: ['a set', 'The GPU filled memory with a value.'],
  gpu_annotation: ['a range, as seen from the GPU', 'From the first to the last work launched inside a named range.'],
  other: ['something else', 'A row of a kind that lanewise does not interpret.'],
}

export function kindWords(kind: string): { what: string; hint: string } {
  const [what, hint] = KIND_WORDS[kind] ?? KIND_WORDS.other
  return { what, hint }
}

/** What a stretch of time holds. */
export interface Measured {
  from: number
  to: number
  classes: Record<string, number>
  deviceSlices: number
  launches: number
  /** Device work by name: number and time inside the stretch, the longest first. */
  kernels: { name: string; count: number; time: number }[]
  /** Operators by name, by their time inside the stretch. */
  operators: { name: string; count: number; time: number }[]
}

export function measure(timeline: Timeline, from: number, to: number, limit = 8): Measured {
  const { columns, slices, extra, rows } = timeline
  const classes: Record<string, number> = {}
  const { cause_start, cause_duration, cause } = columns
  for (let i = 0; i < cause_start.length; i++) {
    const inside = Math.min(to, cause_start[i] + cause_duration[i]) - Math.max(from, cause_start[i])
    if (inside > 0) classes[extra.classes[cause[i]]] = (classes[extra.classes[cause[i]]] ?? 0) + inside
    if (cause_start[i] > to) break
  }
  const kernels = new Map<number, { count: number; time: number }>()
  const operators = new Map<number, { count: number; time: number }>()
  let deviceSlices = 0
  for (const row of rows) {
    const { side } = extra.lanes[row.lane]
    if (side === 'none') continue
    const first = Math.max(row.first, slices.lowerBound(row.first, row.end, from) - 1)
    for (let i = first; i < row.end && slices.start[i] < to; i++) {
      const inside = Math.min(to, slices.end(i)) - Math.max(from, slices.start[i])
      if (inside <= 0) continue
      const kind = slices.kind[i]
      const into = isDevice(kind) ? kernels : kind === KIND.OPERATOR ? operators : null
      if (!into) continue
      if (isDevice(kind)) deviceSlices++
      const entry = into.get(slices.name[i]) ?? { count: 0, time: 0 }
      entry.count++
      entry.time += inside
      into.set(slices.name[i], entry)
    }
  }
  const top = (of: Map<number, { count: number; time: number }>) =>
    [...of]
      .sort((a, b) => b[1].time - a[1].time)
      .slice(0, limit)
      .map(([name, { count, time }]) => ({ name: timeline.shortName(name), count, time }))
  return {
    from,
    to,
    classes,
    deviceSlices,
    launches: launchesIn(timeline, from, to),
    kernels: top(kernels),
    operators: top(operators),
  }
}

function launchesIn(timeline: Timeline, from: number, to: number): number {
  const { launch } = timeline.columns
  const seen = new Set<number>()
  for (let i = 0; launch && i < launch.length; i++) {
    const start = timeline.slices.start[launch[i]]
    if (start >= from && start < to) seen.add(launch[i])
  }
  return seen.size
}

/** The stretch of device time around a moment: what the device does or waits for, and what ends it. */
export interface Cause {
  start: number
  duration: number
  name: string
  next: SliceRef | null
  nextLaunch: SliceRef | null
}

export function causeAt(timeline: Timeline, time: number): Cause | null {
  const { cause_start, cause_duration, cause } = timeline.columns
  let low = 0
  let high = cause_start.length
  while (low < high) {
    const middle = (low + high) >>> 1
    if (cause_start[middle] <= time) low = middle + 1
    else high = middle
  }
  // Intervals of different classes are disjoint: only the latest that began can hold the time.
  const i = low - 1
  if (i < 0 || time >= cause_start[i] + cause_duration[i]) return null
  const end = cause_start[i] + cause_duration[i]
  const next = nextWork(timeline, end)
  const launch = next >= 0 ? timeline.launchOf(next) : -1
  return {
    start: cause_start[i],
    duration: cause_duration[i],
    name: timeline.extra.classes[cause[i]],
    next: next >= 0 ? refOf(timeline, next) : null,
    nextLaunch: launch >= 0 ? refOf(timeline, launch) : null,
  }
}

/** First device work of the described device at or after a time. */
function nextWork(timeline: Timeline, time: number): number {
  let best = -1
  for (const row of timeline.rows) {
    const lane = timeline.extra.lanes[row.lane]
    if (lane.side !== 'device' || lane.process !== timeline.extra.device) continue
    for (let i = timeline.slices.lowerBound(row.first, row.end, time - 1); i < row.end; i++) {
      if (!isDevice(timeline.slices.kind[i])) continue
      if (best < 0 || timeline.slices.start[i] < timeline.slices.start[best]) best = i
      break
    }
  }
  return best
}

const AXES = ['x', 'y', 'z']

/** Arguments in words: the three axes of a size as one, values with their units. */
export function readable(args: readonly Argument[]): { name: string; text: string; meaning: string }[] {
  const found: { name: string; text: string; meaning: string }[] = []
  for (const arg of args) {
    const size = /^(.+)_([xyz])$/.exec(arg.name)
    if (!size) {
      found.push({ name: wordsOf(arg.name), text: textOf(arg), meaning: arg.meaning })
      continue
    }
    const axes = AXES.map((axis) => args.find((other) => other.name === `${size[1]}_${axis}`))
    // All axes stand where the first of them does.
    if (arg !== axes.find((axis) => axis)) continue
    const values = axes.flatMap((axis) => (axis ? [formatQuantity('number', axis.value)] : []))
    found.push({ name: wordsOf(size[1]), text: `${values.join(' × ')} ${arg.unit}`.trim(), meaning: arg.meaning })
  }
  return found
}

/** The profiler's words for arguments of operators say little to who does not know it. */
const WORDS: Record<string, string> = { dims: 'shapes', concrete: 'values', blocks_per_sm: 'blocks per SM' }

const wordsOf = (name: string): string => (Object.hasOwn(WORDS, name) ? WORDS[name] : name.replaceAll('_', ' '))

function textOf(arg: Argument): string {
  if (arg.unit === 'bytes') return formatQuantity('bytes', arg.value)
  const value = typeof arg.value === 'number' ? formatQuantity('number', arg.value) : arg.value
  return arg.unit && arg.unit !== 'row of texts' ? `${value} ${arg.unit}` : value
}
