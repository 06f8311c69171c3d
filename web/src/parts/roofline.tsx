// Kernels by arithmetic intensity and achieved rate, under the roofs of the device.

import { useState } from 'preact/hooks'
import { clean, formatQuantity, formatTime } from '../format'
import { DataTable } from './table'

export interface RooflineData {
  /** Bytes per second. */
  bandwidth: number
  /** Operations per second by type of number. */
  peaks: Record<string, number>
  points: {
    name: string
    shapes: string
    /** Operations and bytes of all calls; time in ns. */
    operations: number
    bytes: number
    time: number
    calls: number
    /** compute, memory, launch, or "" where unknown. */
    bound: string
    /** Of the peak that limits it. */
    share: number | null
  }[]
  card: string
  /** Groups of calls without known work, not in the plot. */
  unknown: number
}

const WIDTH = 900
const HEIGHT = 420
const LEFT = 92
const LIMITS: Record<string, string> = { compute: 'arithmetic', memory: 'memory', launch: 'being short' }

export function Roofline({ data }: { data: RooflineData }) {
  const [picked, setPicked] = useState(-1)
  const points = data.points.filter(({ operations, bytes, time }) => operations > 0 && bytes > 0 && time > 0)
  const peak = Math.max(...Object.values(data.peaks), 1)
  const intensities = points.map(({ operations, bytes }) => operations / bytes)
  const rates = points.map(({ operations, time }) => operations / (time / 1e9))
  const lowX = Math.min(0.1, ...intensities) / 2
  const highX = Math.max((peak / data.bandwidth) * 8, ...intensities) * 2
  const highY = peak * 2
  const lowY = Math.min(peak / 1e5, ...rates) / 2
  const x = (v: number) => LEFT + (Math.log(v / lowX) / Math.log(highX / lowX)) * (WIDTH - LEFT)
  const y = (v: number) => HEIGHT - (Math.log(v / lowY) / Math.log(highY / lowY)) * HEIGHT
  const most = Math.max(...points.map((p) => p.time), 1)
  return (
    <>
      <figure class="chart">
        <svg
          viewBox={`0 0 ${WIDTH} ${HEIGHT + 30}`}
          role="img"
          aria-label="Roofline: achieved rate of each kernel by its intensity"
        >
          <title>Roofline</title>
          {Object.entries(data.peaks).map(([type, rate], i) => {
            const ridge = rate / data.bandwidth
            return (
              <g key={type}>
                <path
                  class="roof"
                  d={`M${x(lowX)} ${y(Math.max(lowY, lowX * data.bandwidth))}L${x(ridge)} ${y(rate)}H${WIDTH}`}
                />
                <text x={WIDTH - 4} y={i ? y(rate) + 13 : y(rate) - 4} text-anchor="end">
                  {clean(type, 24)} {shortRate(rate)}
                </text>
              </g>
            )
          })}
          {points.map(({ name, shapes, time, calls }, i) => (
            // biome-ignore lint/a11y/noStaticElementInteractions: the rows of the table below do the same by keyboard
            <circle
              key={i}
              class={i === picked ? 'dot picked-dot' : 'dot'}
              onClick={() => setPicked(i)}
              cx={x(intensities[i])}
              cy={y(rates[i])}
              r={3 + 11 * Math.sqrt(time / most)}
            >
              <title>
                {`${clean(name, 160)} ${clean(shapes, 160)}: ${calls} calls, ${formatTime(time)}, ${intensities[i].toPrecision(3)} operations per byte, ${formatQuantity('flop_rate', rates[i])}`}
              </title>
            </circle>
          ))}
          <text x={WIDTH - 4} y={HEIGHT - 8} text-anchor="end">
            operations per byte →
          </text>
          <line class="axis" x1={LEFT} x2={WIDTH} y1={HEIGHT + 0.5} y2={HEIGHT + 0.5} />
          {decades(lowX, highX).map((v) => (
            <text key={v} x={x(v)} y={HEIGHT + 16} text-anchor="middle">
              {v}
            </text>
          ))}
          {decades(lowY, highY).map((v) => (
            <text key={v} x={LEFT - 6} y={y(v) + 4} text-anchor="end">
              {shortRate(v)}
            </text>
          ))}
        </svg>
        <figcaption class="dim small">
          Each dot is an operator with its shapes. Across: its arithmetic per byte that it has to move at the least. Up:
          the rate that it reached. The area of a dot is its share of the time. The lines are the limits of the{' '}
          {clean(data.card, 60)}: the sloping one its memory ({formatQuantity('bandwidth', data.bandwidth)}), the level
          ones its arithmetic. A dot above the sloping line found its data in the cache.
          {data.unknown > 0 &&
            ` ${data.unknown.toLocaleString('en')} kinds of calls without recorded shapes, or without a formula, are not in the plot.`}
        </figcaption>
      </figure>
      <DataTable
        block={{
          title: 'Operators of the roofline',
          columns: [
            { key: 'name', type: 'text', label: 'operator' },
            { key: 'shapes', type: 'text', label: 'shapes' },
            { key: 'calls', type: 'count', label: 'calls' },
            { key: 'time', type: 'time', label: 'device time' },
            { key: 'intensity', type: 'number', label: 'operations per byte' },
            { key: 'rate', type: 'flop_rate', label: 'reached' },
            { key: 'bandwidth', type: 'bandwidth', label: 'memory rate' },
            { key: 'limit', type: 'text', label: 'limited by' },
          ],
          rows: points.map(({ name, shapes, bytes, time, calls, bound, share }, row) => ({
            row,
            name,
            shapes,
            calls,
            time,
            intensity: Number(intensities[row].toPrecision(3)),
            rate: rates[row],
            bandwidth: bytes / (time / 1e9),
            limit: `${LIMITS[bound] ?? '–'}${share === null ? '' : `, at ${formatQuantity('share', share)} of it`}`,
          })),
          omitted: 0,
        }}
        tools
        onRow={(row) => setPicked(Number(row.row))}
        current={(row) => row.row === picked}
      />
    </>
  )
}

function decades(low: number, high: number): number[] {
  const found: number[] = []
  for (let e = Math.ceil(Math.log10(low)); e <= Math.log10(high); e++) found.push(10 ** e)
  return found.length > 8 ? found.filter((_, i) => i % 2 === 0) : found
}

/** Without zeros behind the point: on an axis, and of a round peak. */
const shortRate = (rate: number): string => formatQuantity('flop_rate', rate).replace(/\.0+ /, ' ')
