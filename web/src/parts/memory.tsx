// Memory over time: allocated and reserved, with the steps behind them.

import type { Series, Timeline } from '../data/timeline'
import { clean, formatBytes, formatTime } from '../format'
import { hashOf } from '../route'

const WIDTH = 1100
const HEIGHT = 260

export function MemoryCurve({ timeline }: { timeline: Timeline }) {
  const wanted = timeline.series.filter((s) => /^(allocated|reserved):/.test(s.info.key))
  const devices = [...new Set(wanted.map((s) => s.info.key.split(':')[1]))]
  return (
    <>
      {devices.map((device) => (
        <Curve key={device} timeline={timeline} series={wanted.filter((s) => s.info.key.endsWith(`:${device}`))} />
      ))}
    </>
  )
}

function Curve({ timeline, series }: { timeline: Timeline; series: Series[] }) {
  const [from, to] = timeline.extra.span
  const high = Math.max(1, ...series.map((s) => s.high))
  const x = (time: number) => ((time - from) / (to - from)) * WIDTH
  const y = (value: number) => HEIGHT - (value / high) * (HEIGHT - 16)
  const { step_start, step_end, step_number } = timeline.columns
  const peak = series.find((s) => s.info.key.startsWith('allocated')) ?? series[0]
  const at = peakTime(peak)
  return (
    <figure class="chart">
      <figcaption>
        {series.map((s) => `${clean(s.info.label, 80)}: at most ${formatBytes(s.high)}`).join('; ')}. Peak at{' '}
        <a href={hashOf({ view: 'timeline', range: around(at, from, to) })}>{formatTime(at - from)}</a>.
      </figcaption>
      <svg
        viewBox={`0 0 ${WIDTH} ${HEIGHT + 22}`}
        role="img"
        aria-label={`Memory over time, at most ${formatBytes(high)}`}
      >
        <title>Memory over time</title>
        {timeline.extra.stepsRecorded &&
          Array.from(step_start)
            .slice(0, 400)
            .map((start, i) => (
              <g key={i}>
                <rect
                  class={i % 2 ? 'band odd' : 'band'}
                  x={x(start)}
                  y="0"
                  width={Math.max(0, x(step_end[i]) - x(start))}
                  height={HEIGHT}
                />
                {x(step_end[i]) - x(start) > 40 && (
                  <text x={x(start) + 4} y="12">
                    #{step_number[i]}
                  </text>
                )}
              </g>
            ))}
        {series.map((s) => (
          <path
            key={s.info.key}
            class={s.info.key.startsWith('allocated') ? 'curve main' : 'curve'}
            d={path(s, x, y)}
          />
        ))}
        <line class="axis" x1="0" x2={WIDTH} y1={HEIGHT + 0.5} y2={HEIGHT + 0.5} />
        <text x="0" y={HEIGHT + 16}>
          0 µs
        </text>
        <text x={WIDTH} y={HEIGHT + 16} text-anchor="end">
          {formatTime(to - from)}
        </text>
        {rungs(high).map((value) => (
          <g key={value} class="rung">
            <line class="axis" x1="0" x2={WIDTH} y1={y(value)} y2={y(value)} stroke-dasharray="2 6" />
            <text x={WIDTH} y={y(value) - 3} text-anchor="end">
              {formatBytes(value)}
            </text>
          </g>
        ))}
      </svg>
    </figure>
  )
}

/** Round values below the highest: as many as leave room for their labels. */
export function rungs(high: number): number[] {
  const rough = high / 5
  const unit = 10 ** Math.floor(Math.log10(Math.max(rough, 1)))
  const step = [1, 2, 5, 10].map((factor) => factor * unit).find((size) => size >= rough) ?? 10 * unit
  const found: number[] = []
  for (let value = step; value <= high; value += step) found.push(value)
  return found
}

/** A step curve; of many points within half a pixel the highest and the last are enough. */
function path(series: Series, x: (t: number) => number, y: (v: number) => number): string {
  // Nothing is known before the first record: the curve begins there.
  let last = series.value[0] ?? 0
  const parts = [`M${x(series.time[0] ?? 0).toFixed(1)} ${y(last).toFixed(1)}`]
  let pixel = -1
  let peak = 0
  for (let i = 0; i < series.time.length; i++) {
    const here = Math.floor(x(series.time[i]) * 2)
    peak = here === pixel ? Math.max(peak, series.value[i]) : series.value[i]
    if (here !== pixel) parts.push(`H${x(series.time[i]).toFixed(1)}`)
    if (peak !== last) parts.push(`V${y(peak).toFixed(1)}`)
    last = peak
    pixel = here
  }
  parts.push(`H${WIDTH}`)
  return parts.join('')
}

function peakTime(series: Series): number {
  let best = 0
  for (let i = 1; i < series.value.length; i++) if (series.value[i] > series.value[best]) best = i
  return series.time[best] ?? 0
}

function around(at: number, from: number, to: number): [number, number] {
  const half = (to - from) / 50
  return [Math.max(0, at - half), at + half]
}
