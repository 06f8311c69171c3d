// A button that puts a text onto the clipboard, and says so.

import { useState } from 'preact/hooks'

export function Copy({ text, label }: { text: string; label: string }) {
  const [said, say] = useState('')
  return (
    <>
      <button
        type="button"
        onClick={() => void copied(text).then((done) => say(done ? 'Copied.' : 'The browser refused.'))}
      >
        {label}
      </button>{' '}
      <span role="status" class="dim small">
        {said}
      </span>
    </>
  )
}

async function copied(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text)
    return true
  } catch {
    // A page from disk, or in a frame, may have no right to the clipboard, but to copy what is selected in it.
    const box = document.createElement('textarea')
    box.value = text
    box.className = 'out-of-sight'
    document.body.append(box)
    box.select()
    const done = document.execCommand('copy')
    box.remove()
    return done
  }
}
