import { describe, expect, it } from 'vitest'
import { hashOf, parseRoute } from '../src/route'

describe('route', () => {
  it('comes back as it was', () => {
    for (const change of [
      { view: 'overview', finding: 'LAU101' },
      { view: 'timeline', range: [5, 900] },
      { view: 'tables', table: 'kernels' },
      { view: 'timeline', search: 'a b&c=#%' },
    ] as const)
      expect(parseRoute(hashOf(change as never))).toMatchObject(change)
  })

  it('takes a finding or a time alone to the timeline', () => {
    expect(parseRoute('#finding=LAU101').view).toBe('timeline')
    expect(parseRoute('#t=1-2').view).toBe('timeline')
  })

  it('leaves out what it does not understand', () => {
    for (const hash of ['', '#', '#view=x', '#t=5-1', '#t=-5-1', '#finding=<img>', '#%E0%A4%A', '#a=b=c&&'])
      expect(parseRoute(hash)).toMatchObject({ view: 'overview', finding: '', range: null })
  })
})
