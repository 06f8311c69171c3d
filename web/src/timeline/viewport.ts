// Which stretch of time is on screen. Times are ns; x is in CSS pixels from the left edge of the plot.

export interface Viewport {
  from: number
  to: number
}

/** The shortest stretch that can be shown: below it, slices have no more detail. */
const SHORTEST = 20

export const perPixel = (view: Viewport, width: number): number => (view.to - view.from) / Math.max(1, width)

export const xOf = (view: Viewport, width: number, time: number): number =>
  ((time - view.from) / (view.to - view.from)) * width

export const timeOf = (view: Viewport, width: number, x: number): number =>
  view.from + (x / Math.max(1, width)) * (view.to - view.from)

/** The view made longer or shorter by a factor, with one time staying where it is. */
export function zoomed(view: Viewport, factor: number, at: number, span: Viewport): Viewport {
  const length = Math.max(SHORTEST, Math.min((span.to - span.from) * 1.1, (view.to - view.from) * factor))
  const share = (at - view.from) / (view.to - view.from)
  return within({ from: at - share * length, to: at + (1 - share) * length }, span)
}

export function panned(view: Viewport, by: number, span: Viewport): Viewport {
  return within({ from: view.from + by, to: view.to + by }, span)
}

/** The view moved so that it does not leave the recording by more than a twentieth of itself. */
export function within(view: Viewport, span: Viewport): Viewport {
  const length = view.to - view.from
  const slack = length * 0.05
  const low = span.from - slack
  const high = span.to + slack
  if (length >= high - low) {
    const middle = (span.from + span.to) / 2
    return { from: middle - length / 2, to: middle + length / 2 }
  }
  if (view.from < low) return { from: low, to: low + length }
  if (view.to > high) return { from: high - length, to: high }
  return view
}

/** A view that shows a stretch with room around it. */
export function around(from: number, to: number, span: Viewport, room = 0.35): Viewport {
  const length = Math.max(SHORTEST, (to - from) * (1 + room))
  const middle = (from + to) / 2
  return within({ from: middle - length / 2, to: middle + length / 2 }, span)
}

/** Round times for the ruler, about `count` of them, and their distance. */
export function ticks(view: Viewport, count: number): { step: number; times: number[] } {
  const raw = (view.to - view.from) / Math.max(1, count)
  const magnitude = 10 ** Math.floor(Math.log10(Math.max(raw, 1e-9)))
  const step = Math.max(1, [1, 2, 5, 10].map((m) => m * magnitude).find((m) => m >= raw) ?? magnitude * 10)
  const times: number[] = []
  for (let time = Math.ceil(view.from / step) * step; time <= view.to && times.length < 200; time += step)
    times.push(time)
  return { step, times }
}

/** A time on the ruler: as many digits as the distance of the marks needs, so that no two marks read alike. */
export function tickLabel(time: number, step: number): string {
  const size = Math.abs(time)
  const [unit, name] = size >= 1e9 ? [1e9, 's'] : size >= 1e6 ? [1e6, 'ms'] : size >= 1e3 ? [1e3, 'µs'] : [1, 'ns']
  if (time === 0) return '0'
  const digits = Math.min(9, Math.max(0, Math.ceil(Math.log10(unit / step) - 1e-9)))
  return `${time < 0 ? '−' : ''}${(size / unit).toFixed(digits)} ${name}`
}
