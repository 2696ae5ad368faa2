// A button to copy each block of code. Of a dialogue with a shell it copies what is typed: no prompts, no answers.
const typed = block => {
  const prompts = block.querySelectorAll(".gp");
  if (!prompts.length) return block.textContent;
  const lines = block.textContent.split("\n").filter(line => line.startsWith("$ "));
  return lines.map(line => line.slice(2)).join("\n") + "\n";
};

for (const block of document.querySelectorAll("div.highlight pre")) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "copy";
  button.textContent = "Copy";
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(typed(block));
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(block);
      button.textContent = "Selected";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
  block.parentElement.append(button);
}
