// node read.cjs speedscope|pprof FILE: reads the file as the tool itself does and prints what it found as JSON.
const fs = require('node:fs');
const zlib = require('node:zlib');

const [format, file] = process.argv.slice(2);

if (format === 'speedscope') {
  const Ajv = require('ajv');
  const schema = JSON.parse(fs.readFileSync(require.resolve('speedscope/dist/release/file-format-schema.json'), 'utf8'));
  const check = new Ajv({ strict: false }).compile(schema);
  const document = JSON.parse(fs.readFileSync(file, 'utf8'));
  const valid = check(document);
  console.log(JSON.stringify({ valid, errors: check.errors, profiles: document.profiles.length }));
} else {
  const { Profile } = require('pprof-format');
  const profile = Profile.decode(zlib.gunzipSync(fs.readFileSync(file)));
  const text = (row) => profile.stringTable.strings[Number(row)];
  const functionOf = new Map(profile.function.map((f) => [Number(f.id), text(f.name)]));
  const nameOf = new Map(profile.location.map((l) => [Number(l.id), functionOf.get(Number(l.line[0].functionId))]));
  console.log(JSON.stringify({
    types: profile.sampleType.map((t) => [text(t.type), text(t.unit)]),
    samples: profile.sample.map((s) => ({
      stack: s.locationId.map((id) => nameOf.get(Number(id))),
      values: s.value.map(Number),
      labels: s.label.map((l) => [text(l.key), text(l.str)]),
    })),
  }));
}
