import { describe, expect, it } from 'vitest'
import { clean, formatQuantity } from '../src/format'
import examples from './quantities.json'

describe('formatQuantity', () => {
  it('reads as in Python, with the sign of microseconds', () => {
    for (const [type, value, text] of examples)
      expect(formatQuantity(type as string, value), `${type} ${value}`).toBe(String(text).replace(/ us$/, ' µs'))
  })
})

describe('clean', () => {
  it('drops controls, direction marks and lone surrogates, and keeps ordinary text', () => {
    expect(clean('a\u202eb\u0007c\ud800d\ne')).toBe('a?b?c?d e')
    expect(clean('größe 模型 🙂')).toBe('größe 模型 🙂')
  })

  it('shows microseconds with their sign, in sentences too', () => {
    expect(clean('3.5 us of 12 us; 4 ushers, status, us')).toBe('3.5 µs of 12 µs; 4 ushers, status, us')
  })

  it('cuts in the middle', () => {
    const cut = clean('x'.repeat(50_000) + 'end', 64)
    expect(cut.length).toBe(64)
    expect(cut.endsWith('end')).toBe(true)
  })
})
