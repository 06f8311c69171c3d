// Kernels by arithmetic intensity and achieved rate, under the roofs of the device.

import { clean, formatQuantity, formatTime } from '../format'

export interface RooflineData {
  /** Bytes per second. */
  bandwidth: number
  /** Operations per second by type of number. */
  peaks: Record<string, number>
  /** name, operations, bytes, time in ns, number of runs */
  kernels: [string, number, number, number, number][]
  card: string
  /** Groups of calls without known work, not in the plot. */
  unknown: number
}

const WIDTH = 900
const HEIGHT = 420
const LEFT = 92

export function Roofline({ data }: { data: RooflineData }) {
  const points = data.kernels.filter(([, ops, bytes, time]) => ops > 0 && bytes > 0 && time > 0)
  const peak = Math.max(...Object.values(data.peaks), 1)
  const intensities = points.map(([, ops, bytes]) => ops / bytes)
  const lowX = Math.min(0.1, ...intensities) / 2
  const highX = Math.max((peak / data.bandwidth) * 8, ...intensities) * 2
  const highY = peak * 2
  const lowY = Math.min(peak / 1e5, ...points.map(([, ops, , time]) => ops / (time / 1e9))) / 2
  const x = (v: number) => LEFT + (Math.log(v / lowX) / Math.log(highX / lowX)) * (WIDTH - LEFT)
  const y = (v: number) => HEIGHT - (Math.log(v / lowY) / Math.log(highY / lowY)) * HEIGHT
  const most = Math.max(...points.map((p) => p[3]), 1)
  return (
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
                {clean(type, 24)} {formatRate(rate)}
              </text>
            </g>
          )
        })}
        {points.map(([name, ops, bytes, time, count], i) => (
          <circle
            key={i}
            class="dot"
            cx={x(ops / bytes)}
            cy={y(ops / (time / 1e9))}
            r={3 + 11 * Math.sqrt(time / most)}
          >
            <title>
              {`${clean(name, 160)}: ${count} calls, ${formatTime(time)}, ${(ops / bytes).toPrecision(3)} operations per byte, ${formatRate(ops / (time / 1e9))}`}
            </title>
          </circle>
        ))}
        <line class="axis" x1={LEFT} x2={WIDTH} y1={HEIGHT + 0.5} y2={HEIGHT + 0.5} />
        {decades(lowX, highX).map((v) => (
          <text key={v} x={x(v)} y={HEIGHT + 16} text-anchor="middle">
            {v}
          </text>
        ))}
        {decades(lowY, highY).map((v) => (
          <text key={v} x={LEFT - 6} y={y(v) + 4} text-anchor="end">
            {formatRate(v)}
          </text>
        ))}
      </svg>
      <figcaption class="dim small">
        Across: operations per byte moved at the least. Up: operations per second. The area of a dot is its share of the
        time. Memory roof {formatQuantity('bandwidth', data.bandwidth)}.
        {data.unknown > 0 &&
          ` ${data.unknown.toLocaleString('en')} kinds of calls without recorded shapes, or without a formula, are not in the plot.`}
      </figcaption>
    </figure>
  )
}

function decades(low: number, high: number): number[] {
  const found: number[] = []
  for (let e = Math.ceil(Math.log10(low)); e <= Math.log10(high); e++) found.push(10 ** e)
  return found.length > 8 ? found.filter((_, i) => i % 2 === 0) : found
}

function formatRate(rate: number): string {
  for (const [size, unit] of [
    [1e12, 'T'],
    [1e9, 'G'],
    [1e6, 'M'],
    [1e3, 'k'],
  ] as const)
    if (rate >= size) return `${Number((rate / size).toPrecision(3))} ${unit}FLOP/s`
  return `${Number(rate.toPrecision(2))} FLOP/s`
}
