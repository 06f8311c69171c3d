import { expect, test } from 'vitest'
import { Slices } from '../src/data/timeline'
import { CauseShares } from '../src/timeline/causes'

test('a stretch is divided by the time of each class, whatever reaches over its ends', () => {
  const start = Float64Array.from([0, 10, 30, 40, 90])
  const duration = Float64Array.from([10, 20, 10, 50, 10])
  const which = [0, 1, 0, 1, 2]
  const shares = new CauseShares(new Slices(start, duration, Uint8Array.from(which), Uint8Array.from(which)), which, 3)
  const times = new Float64Array(3)
  expect(shares.between(0, 100, times)).toBe(true)
  expect([...times]).toEqual([20, 70, 10])
  expect(shares.between(20, 60, times)).toBe(true)
  expect([...times]).toEqual([10, 30, 0])
  expect(shares.between(41, 80, times)).toBe(false)
})
