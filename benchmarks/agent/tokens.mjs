// Count the tokens of texts, given as a JSON list on standard input, in the vocabularies of three models.
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";

const require = createRequire(`${process.env.NODE_MODULES}/`);
const counters = {
  o200k: require("gpt-tokenizer/encoding/o200k_base").countTokens,
  cl100k: require("gpt-tokenizer/encoding/cl100k_base").countTokens,
  claude: require("@anthropic-ai/tokenizer").countTokens,
};
const texts = JSON.parse(readFileSync(0, "utf8"));
console.log(JSON.stringify(texts.map((text) =>
  Object.fromEntries(Object.entries(counters).map(([name, count]) => [name, count(text)])))));
