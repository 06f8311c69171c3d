import { describe, expect, it } from 'vitest'
import { versionText } from '../src/format'
import { readable } from '../src/timeline/details'

const arg = (name: string, value: number | string, unit = '') => ({ name, value, unit, meaning: '' })

describe('arguments in words', () => {
  it('joins the axes of a size and keeps the rest', () => {
    const found = readable([
      arg('grid_x', 1352, 'blocks'),
      arg('grid_y', 2, 'blocks'),
      arg('grid_z', 1, 'blocks'),
      arg('blocks_per_sm', 10.24),
      arg('shared_memory', 2300, 'bytes'),
      arg('direction', 'HtoD'),
    ])
    expect(found.map(({ name, text }) => `${name}: ${text}`)).toEqual([
      'grid: 1,352 × 2 × 1 blocks',
      'blocks per SM: 10.24',
      'shared memory: 2.30 kB',
      'direction: HtoD',
    ])
  })
  it('takes the axes that are there', () => {
    expect(readable([arg('block_y', 8, 'threads')]).map(({ text }) => text)).toEqual(['8 threads'])
  })
})

describe('versions written as one number', () => {
  it('reads those of CUDA and HIP and leaves others alone', () => {
    expect(versionText('cuda_runtime_version', '13000')).toBe('13.0')
    expect(versionText('cuda_driver_version', '12040')).toBe('12.4')
    expect(versionText('hip_runtime_version', '60443483')).toBe('6.4.43483')
    expect(versionText('cupti_version', '130001')).toBe('130001')
    expect(versionText('cuda_runtime_version', '<b>')).toBe('<b>')
  })
})
