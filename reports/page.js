"use strict";
(function () {
  var lanes = document.querySelector(".lanes");
  var tools = document.querySelector(".tools");
  var pointed = document.getElementById("pointed");
  if (!lanes || !tools) return;
  var svg = lanes.querySelector("svg");
  var zoom = 1;
  tools.hidden = false;
  function show(next) {
    var middle = (lanes.scrollLeft + lanes.clientWidth / 2) / lanes.scrollWidth;
    zoom = Math.min(64, Math.max(1, next));
    svg.setAttribute("width", zoom * 100 + "%");
    lanes.scrollLeft = middle * lanes.scrollWidth - lanes.clientWidth / 2;
  }
  tools.addEventListener("click", function (event) {
    var step = event.target.getAttribute("data-zoom");
    if (step) show(step === "0" ? 1 : zoom * Number(step));
  });
  function tell(event) {
    var title = event.target.querySelector && event.target.querySelector("title");
    if (title && event.target.tagName === "rect") pointed.textContent = title.textContent;
  }
  lanes.addEventListener("mouseover", tell);
  lanes.addEventListener("focusin", tell);
})();
