-- SPDX-License-Identifier: BSD-2-Clause
-- For luarocks make in the folder above.
rockspec_format = "3.0"
package = "heapline"
version = "scm-1"
source = {
  url = ".",
}
description = {
  summary = "What a script says to, and asks of, the memory recorder of its process",
  license = "BSD-2-Clause",
}
supported_platforms = {"linux"}
dependencies = {
  "lua >= 5.1, < 5.6",
}
build = {
  type = "builtin",
  modules = {
    heapline = {
      sources = {
        "lua/heapline.c",
        "src/recorder/ask_collector.c",
        "src/recorder/line_report.c",
        "src/recorder/sys.c",
      },
      defines = {"_GNU_SOURCE"},
      incdirs = {"include", "src"},
    },
  },
}
