// Text onto the clipboard.

/** Returns whether it is there: a page from disk, or in a frame, may only copy what is selected in it. */
export async function toClipboard(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text)
    return true
  } catch {
    return byHand(text)
  }
}

function byHand(text: string): boolean {
  const field = document.createElement('textarea')
  field.value = text
  field.className = 'off-screen'
  document.body.append(field)
  field.select()
  const done = document.execCommand('copy')
  field.remove()
  return done
}
