// What the page does in the browser itself: presses in cards, following the chat, light and dark.
() => {
  const stored = localStorage.getItem("amend-theme");
  if (stored) document.body.classList.toggle("dark", stored === "dark");

  document.addEventListener("click", (event) => {
    if (!event.target.closest("#am-theme")) return;
    const dark = document.body.classList.toggle("dark");
    localStorage.setItem("amend-theme", dark ? "dark" : "light");
  });

  // Follow the conversation while its end is in sight; leave whoever has scrolled up alone.
  const follow = () => {
    const chat = document.getElementById("am-chat");
    if (!chat || chat.dataset.followed) return Boolean(chat);
    chat.dataset.followed = "yes";
    chat.tabIndex = 0;
    chat.setAttribute("role", "region");
    chat.setAttribute("aria-label", "Conversation");
    let near = true;
    // The end of the chat, but never past the top of a result that nothing has been said after.
    const end = () => {
      const bottom = chat.scrollHeight - chat.clientHeight;
      const result = [...chat.querySelectorAll(".am-result")].pop();
      for (let next = result; next; next = next.nextElementSibling) {
        if (next.matches(".am-user")) return bottom;
      }
      if (!result || document.querySelector("#am-live .am-message")) return bottom;
      const top = result.getBoundingClientRect().top - chat.getBoundingClientRect().top + chat.scrollTop - 12;
      return Math.min(bottom, top);
    };
    const toEnd = () => {
      if (near) chat.scrollTop = end();
    };
    chat.addEventListener("scroll", () => {
      near = Math.abs(end() - chat.scrollTop) < 90;
    });
    new MutationObserver(toEnd).observe(chat, { childList: true, subtree: true, characterData: true });
    new ResizeObserver(toEnd).observe(chat);
    // Whoever sends something wants to see it.
    const sent = (event) => {
      const pressed = event.type === "click" ? event.target.closest("#am-send, #am-panel button") : event.key === "Enter";
      if (pressed) near = true;
    };
    document.addEventListener("click", sent, true);
    document.getElementById("am-message")?.addEventListener("keydown", sent, true);
    return true;
  };
  const wait = setInterval(() => follow() && clearInterval(wait), 50);
}
