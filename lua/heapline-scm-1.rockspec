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
  type = "make",
  build_target = "lua-module",
  build_variables = {
    CC = "$(CC)",
    LUA_INC = "$(LUA_INCDIR)",
    LUA_MODULE = "lua/heapline.so",
  },
  install_pass = false,
  install = {
    lib = {heapline = "lua/heapline.so"},
  },
}
