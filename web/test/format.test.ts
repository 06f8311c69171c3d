import { describe, expect, it } from 'vitest'
import { clean, formatQuantity } from '../src/format'
import examples from './quantities.json'

describe('formatQuantity', () => {
  it('reads as in Python', () => {
    for (const [type, value, text] of examples)
      expect(formatQuantity(type as string, value), `${type} ${value}`).toBe(text)
  })
})

describe('clean', () => {
  it('drops controls, direction marks and lone surrogates, and keeps ordinary text', () => {
    expect(clean('a\u202eb\u0007c\ud800d\ne')).toBe('a?b?c?d e')
    expect(clean('größe 模型 🙂')).toBe('größe 模型 🙂')
  })

  it('cuts in the middle', () => {
    const cut = clean('x'.repeat(50_000) + 'end', 64)
    expect(cut.length).toBe(64)
    expect(cut.endsWith('end')).toBe(true)
  })
})
