import { describe, expect, it } from 'vitest'
import { find, Slices } from '../src/data/timeline'
import { drawLine, lineOf } from '../src/timeline/line'
import { LEVELS, type Palette } from '../src/timeline/palette'

function random(seed: number): () => number {
  let state = seed
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0
    return state / 2 ** 32
  }
}

function slicesOf(count: number, seed: number, longest = 20): Slices {
  const next = random(seed)
  const start = new Float64Array(count)
  const duration = new Float64Array(count)
  let at = 0
  for (let i = 0; i < count; i++) {
    at += Math.floor(next() * 10)
    start[i] = at
    duration[i] = Math.floor(next() ** 4 * longest)
    at += duration[i]
  }
  return new Slices(start, duration, new Uint32Array(count), new Uint8Array(count))
}

describe('Slices', () => {
  it('finds bounds and the longest of any range as a plain search does', () => {
    const slices = slicesOf(3000, 1)
    const next = random(2)
    for (let i = 0; i < 500; i++) {
      const from = Math.floor(next() * 2999)
      const to = from + 1 + Math.floor(next() * (2999 - from))
      const time = next() * slices.start[2999] * 1.1
      let bound = from
      while (bound < to && slices.start[bound] < time) bound++
      expect(slices.lowerBound(from, to, time)).toBe(bound)
      let longest = from
      for (let k = from; k < to; k++) if (slices.duration[k] > slices.duration[longest]) longest = k
      expect(slices.duration[slices.longest(from, to)]).toBe(slices.duration[longest])
      if (slices.start[from] < time) expect(slices.gallop(from, to, time)).toBe(bound)
    }
  })

  it('holds no slice, and one', () => {
    expect(slicesOf(0, 1).lowerBound(0, 0, 5)).toBe(0)
    expect(slicesOf(1, 1).longest(0, 1)).toBe(0)
  })
})

describe('find', () => {
  it('finds values of a sorted column, and nothing in none', () => {
    const column = Uint32Array.from([2, 5, 9])
    expect([2, 5, 9, 1, 6, 10].map((value) => find(column, value))).toEqual([0, 1, 2, -1, -1, -1])
    expect(find(undefined, 3)).toBe(-1)
  })
})

describe('drawLine', () => {
  const palette: Palette = {
    pixels: Uint32Array.from({ length: LEVELS * 2 }, (_, i) => i + 1),
    background: 0,
    ofName: new Uint8Array(),
    ofWork: new Uint8Array(),
    wait: 0,
    pattern: new Uint8Array(2),
    ofClass: new Uint8Array(),
  }
  const draw = (slices: Slices, from: number, to: number, width: number) => {
    const line = lineOf(width)
    drawLine(line, slices, { first: 0, end: slices.count }, from, to, palette, () => 0, 1e9)
    return line.pixels
  }

  it('colours every pixel that a slice covers for at least half of it, at every zoom', () => {
    for (const seed of [3, 4, 5]) {
      const slices = slicesOf(2000, seed, 400)
      const whole = slices.end(1999)
      for (const [from, to] of [
        [0, whole],
        [whole * 0.3, whole * 0.35],
        [whole * 0.5, whole * 0.501],
      ]) {
        const width = 700
        const pixels = draw(slices, from, to, width)
        const scale = width / (to - from)
        for (let i = 0; i < slices.count; i++) {
          const left = (slices.start[i] - from) * scale
          const right = (slices.end(i) - from) * scale
          if (right - left < 1) continue
          for (let x = Math.max(0, Math.ceil(left)); x < Math.min(width, Math.floor(right)); x++)
            expect(pixels[x], `slice ${i} at ${x}`).not.toBe(0)
        }
      }
    }
  })

  it('leaves a gap of two pixels empty', () => {
    const slices = new Slices(
      Float64Array.from([0, 60]),
      Float64Array.from([40, 40]),
      new Uint32Array(2),
      new Uint8Array(2),
    )
    const pixels = draw(slices, 0, 100, 100)
    expect([...pixels.subarray(41, 59)].every((pixel) => pixel === 0)).toBe(true)
    expect(pixels[20]).not.toBe(0)
    expect(pixels[80]).not.toBe(0)
  })

  it('draws a long slice that begins in the pixel of many short ones', () => {
    const start = Float64Array.from([0, 1, 2, 3])
    const slices = new Slices(start, Float64Array.from([1, 1, 1, 900]), new Uint32Array(4), new Uint8Array(4))
    const pixels = draw(slices, 0, 1000, 100)
    expect([...pixels.subarray(1, 90)].every((pixel) => pixel !== 0)).toBe(true)
  })
})
