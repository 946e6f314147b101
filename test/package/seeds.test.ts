import { expect, test } from "vitest";
import { textOf } from "../support/shown-by.js";

const page = textOf("docs/seeds.md") ?? "";

interface Row {
  readonly section: string;
  readonly name: string;
  readonly counterpart: string;
  readonly tests: string;
}

function rowsOf(text: string): Row[] {
  let section = "";
  return text.split("\n").flatMap((line) => {
    section = /^## (\d{3})/.exec(line)?.[1] ?? section;
    const [, name, counterpart, tests] = /^\| (.+?) \| (.+) \| ([^|]+) \|$/.exec(line) ?? [];
    if (section === "" || tests === undefined || name === "seed name" || name === "---") return [];
    return [{ section, name: name as string, counterpart: counterpart as string, tests }];
  });
}

const rows = rowsOf(page);

/** What follows a file's name in a row, up to the next file. */
const parts = (cell: string) => cell.split(/(?=`[\w./-]+\.test\.ts`)/).filter((part) => part.startsWith("`"));
const fileOf = (part: string) => /^`([^`]+)`/.exec(part)?.[1] as string;

test("docs/seeds.md counts its rows as they are: mapped, in part, not yet", () => {
  const counted = [...page.matchAll(/^\| (\d{3}): [^|]+ \| (\d+) \| (\d+) \| (\d+) \|$/gm)];
  const found = counted.map(([, section]) => {
    const own = rows.filter((row) => row.section === section);
    const begins = (word: string) => own.filter(({ counterpart }) => counterpart.startsWith(word)).length;
    const [inPart, notYet] = [begins("in part"), begins("not yet")];
    return [section, own.length - inPart - notYet, inPart, notYet];
  });
  expect(found).toEqual(counted.map(([, section, ...counts]) => [section, ...counts.map(Number)]));
  expect(counted).toHaveLength(5);
  expect(rows.length).toBeGreaterThan(190);
});

test("every row of docs/seeds.md names a test whose file is there, with the names it quotes and the line of the checklist", () => {
  const missing = rows.flatMap(({ name, tests }) => {
    const files = parts(tests).map((part) => ({ part, text: textOf(`test/${fileOf(part)}`) }));
    const marks = [...tests.matchAll(/§(15\.\d+)/g)].map(([, mark]) => mark as string);
    return [
      ...(files.length === 0 ? [`${name} has no test`] : []),
      ...files.filter(({ text }) => text === undefined).map(({ part }) => `${name}: there is no ${fileOf(part)}`),
      ...files.flatMap(({ part, text = "" }) =>
        [...part.matchAll(/"([^"]+?)(?: …)?"/g)]
          .filter(([, quoted = ""]) => !text.includes(quoted))
          .map(([, quoted]) => `${name}: ${fileOf(part)} has no "${quoted}"`),
      ),
      ...marks
        .filter((mark) => !files.some(({ text = "" }) => text.includes(`§${mark}`)))
        .map((mark) => `${name}: no test says §${mark}`),
    ];
  });
  expect(missing).toEqual([]);
});

test("every file of the source that docs/seeds.md names is there, and so is the symbol beside it", () => {
  const named = rows.flatMap(({ name, counterpart }) =>
    [...counterpart.matchAll(/`((?:src|workers)\/[\w./-]+)`(?: `([^`]+)`)?/g)].map(([, path = "", symbol]) => ({
      name,
      path,
      words: symbol?.split(/[^\w$]+/).filter((word) => /^[A-Za-z_]/.test(word)) ?? [],
    })),
  );
  expect(named.length).toBeGreaterThan(250);
  const missing = named.flatMap(({ name, path, words }) => {
    const text = textOf(path);
    if (text === undefined) return [`${name}: there is no ${path}`];
    return words.filter((word) => !text.includes(word)).map((word) => `${name}: ${path} has no ${word}`);
  });
  expect(missing).toEqual([]);
});
