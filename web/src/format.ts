// How typed numbers read: the same rules as lanewise/report/quantity.py (a shared list of examples tests both), but that a
// page shows microseconds with their sign, as lanewise/micro.py does for terminals.

import type { QuantityType } from './data/report'

const TIMES: [number, string][] = [
  [1e9, 's'],
  [1e6, 'ms'],
  [1e3, 'µs'],
  [1, 'ns'],
]
const SIZES: [number, string][] = [
  [1e9, 'GB'],
  [1e6, 'MB'],
  [1e3, 'kB'],
  [1, 'B'],
]
const RATES: [number, string][] = [
  [1e12, 'TB/s'],
  [1e9, 'GB/s'],
  [1e6, 'MB/s'],
  [1, 'B/s'],
]

const flops = (unit: string): [number, string][] => [
  [1e12, `T${unit}`],
  [1e9, `G${unit}`],
  [1e6, `M${unit}`],
  [1e3, `k${unit}`],
  [1, unit],
]
const OPERATIONS = flops('FLOP')
const OPERATION_RATES = flops('FLOP/s')

export function formatQuantity(type: QuantityType | string, value: unknown): string {
  if (value === null || value === undefined || (typeof value === 'number' && Number.isNaN(value))) return '–'
  if (type === 'text') return String(value)
  const number = Number(value)
  switch (type) {
    case 'time':
      return number < 0 ? '–' : scaled(number, TIMES)
    case 'share':
      return percent(number)
    case 'bytes':
      return number < 0 ? '–' : scaled(number, SIZES)
    case 'bandwidth':
      return number <= 0 ? '–' : scaled(number, RATES)
    case 'flops':
      return number < 0 ? '–' : scaled(number, OPERATIONS)
    case 'flop_rate':
      return number <= 0 ? '–' : scaled(number, OPERATION_RATES)
    case 'ratio':
      return number < 10 ? `${number.toFixed(1)}x` : `${number.toFixed(0)}x`
    case 'number':
      return Number.isInteger(number) ? grouped(number, 0) : String(Number(number.toPrecision(5)))
    default:
      return Number.isInteger(number) ? grouped(number, 0) : grouped(number, 1)
  }
}

export const formatTime = (ns: number): string => formatQuantity('time', ns)

/** As lanewise/report/gain.py writes them. */
export function formatJoules(value: number): string {
  if (value >= 1e3) return `${Number((value / 1e3).toPrecision(3))} kJ`
  return value >= 0.1 ? `${Number(value.toPrecision(3))} J` : `${Number((value * 1e3).toPrecision(2))} mJ`
}

export const formatDollars = (value: number): string =>
  value >= 0.1 ? `$${grouped(value, 2)}` : `$${Number(value.toPrecision(2))}`

function scaled(value: number, units: [number, string][]): string {
  const smallest = units[units.length - 1][1]
  if (value === 0) return smallest === 'ns' ? '0 µs' : `0 ${smallest}`
  for (const [size, unit] of units) {
    if (Math.abs(value) >= size) {
      const number = value / size
      const digits = Math.abs(number) >= 1000 || unit === 'ns' || unit === 'B' ? 0 : Math.abs(number) >= 10 ? 1 : 2
      return `${grouped(number, digits)} ${unit}`
    }
  }
  return `${Number(value.toPrecision(2))} ${smallest}`
}

function percent(value: number): string {
  const number = value * 100
  if (number === 0) return '0 %'
  if (Math.abs(number) < 0.1) return '<0.1 %'
  return Math.abs(number) < 10 || (number > 99 && number < 100) ? `${number.toFixed(1)} %` : `${number.toFixed(0)} %`
}

function grouped(value: number, digits: number): string {
  const [whole, fraction] = value.toFixed(digits).split('.')
  const text = whole.replace(/\B(?=(\d{3})+(?!\d))/g, ',')
  return fraction ? `${text}.${fraction}` : text
}

// Controls, direction marks and other invisible characters, private use, lone surrogates.
const HIDDEN = /[\p{Cc}\p{Cf}\p{Co}\p{Cs}]/gu

const US = /(?<=\d )us\b/g

/** Untrusted text without direction marks, controls and lone surrogates, cut in the middle where too long. */
export function clean(text: string, limit = 300): string {
  let shown = text
  if (text.length > limit) {
    const head = Math.floor(((limit - 1) * 2) / 3)
    shown = `${text.slice(0, head)}…${text.slice(text.length - (limit - 1 - head))}`
  }
  return shown.replace(HIDDEN, (c) => (c === '\n' || c === '\t' ? ' ' : '?')).replace(US, 'µs')
}

/** CUDA and HIP write their version as one number: `13000` is 13.0, `60443483` is 6.4.43483. */
export function versionText(name: string, value: string): string {
  const number = /^\d{4,9}$/.test(value) ? Number(value) : 0
  if (number && /^cuda_(runtime|driver)/.test(name))
    return `${Math.floor(number / 1e3)}.${Math.floor(number / 10) % 100}`
  if (number >= 1e7 && /^hip_(runtime|driver)/.test(name))
    return `${Math.floor(number / 1e7)}.${Math.floor(number / 1e5) % 100}.${number % 1e5}`
  return value
}

export function formatBytes(bytes: number): string {
  return formatQuantity('bytes', bytes)
}

const widths = new Map<string, number>()

/** Width of an average character of a canvas font, for cutting labels without measuring each. */
export function characterWidth(context: CanvasRenderingContext2D): number {
  let width = widths.get(context.font)
  if (width === undefined) {
    const sample = 'aten::convolution_backward<float, 8> cudaLaunchKernel sm90_gemm ProfilerStep#12'
    width = (context.measureText(sample).width / sample.length) * 1.04
    widths.set(context.font, width)
  }
  return width
}
