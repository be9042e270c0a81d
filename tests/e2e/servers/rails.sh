# SPDX-License-Identifier: BSD-2-Clause
# An application that keeps each page it has rendered, in puma. bash begins it in an empty folder.
cat > config.ru <<'END'
class Pages
  def initialize
    @pages = {}
  end

  def render(path)
    "page #{path} " * 4000
  end

  def call(environment)
    path = environment["PATH_INFO"]
    [200, {}, [@pages[path] ||= render(path)]]
  end
end

run Pages.new
END
puma -q -t 2:2 -e production -b unix://$PWD/socket config.ru > puma.log 2>&1 &
PID=$!
until curl -sf --unix-socket socket http://shop/ > page.html; do kill -0 $PID; sleep 0.1; done
curl -s --unix-socket socket 'http://shop/[1-500]' > pages.html
(for ((i = 501; ; i += 20)); do curl -s --unix-socket socket "http://shop/[$i-$((i + 19))]"; sleep 0.3; done > pages.html) &
