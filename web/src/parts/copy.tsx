// A button that puts a text onto the clipboard, and says so.

import { useState } from 'preact/hooks'
import { toClipboard } from '../clipboard'

export function Copy({ text, label }: { text: string; label: string }) {
  const [said, say] = useState('')
  return (
    <>
      <button
        type="button"
        onClick={() => void toClipboard(text).then((done) => say(done ? 'Copied.' : 'The browser refused.'))}
      >
        {label}
      </button>{' '}
      <span role="status" class="dim small">
        {said}
      </span>
    </>
  )
}
