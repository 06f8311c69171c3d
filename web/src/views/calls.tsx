export function Calls(_: Record<string, unknown>) {
  return <main id="main" />
}
