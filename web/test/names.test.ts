import { describe, expect, it } from 'vitest'
import { distinctNames } from '../src/parts/names'

const short = (name: string) => name.split('<')[0].split(' ').pop() ?? name

describe('names where there is little room', () => {
  it('keeps a short name that is the only one', () => {
    expect(distinctNames(['void mul<float>', 'void add<float>'], short).get('void mul<float>')).toBe('mul')
  })
  it('adds where names of one short form differ', () => {
    const names = ['void reduce<512, 1, SumOps<float>>', 'void reduce<512, 1, MeanOps<float>>', 'void reduce<128, 4>']
    const labels = distinctNames(names, short)
    expect([...labels.values()].sort()).toEqual([
      'reduce …128, 4>',
      'reduce …MeanOps<float>>',
      'reduce …SumOps<float>>',
    ])
    expect(new Set(labels.values()).size).toBe(3)
  })
  it('tells a name from one that begins with it', () => {
    const labels = distinctNames(['f<a>', 'f<a>b'], (name) => name.slice(0, 1))
    expect(new Set(labels.values()).size).toBe(2)
  })
})
