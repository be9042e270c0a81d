// SPDX-License-Identifier: BSD-2-Clause
// A server that leaks in a map, and serves requests for a while: request_server REQUESTS US, where
// US is how long one request takes.
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <unistd.h>
#include <vector>

namespace shop
{

struct session {
	std::string user;
	std::vector<std::pair<std::string, double>> basket;
};

static std::map<std::string, session, std::less<>> sessions;

/* What is parsed is gone when the request has been served. */
__attribute__((noinline)) static std::vector<std::string> parse(const std::string &text)
{
	std::vector<std::string> words;

	for (size_t at = 0; at < text.size(); at += 40)
		words.push_back(text.substr(at, 40));
	return words;
}

__attribute__((noinline)) static void handle_request(unsigned number)
{
	std::vector<std::string> words =
		parse(std::string(400, static_cast<char>('a' + number % 26)));
	session &kept = sessions["session number " + std::to_string(number)]; /* LEAK */

	kept.user.assign(words[0]);
	kept.basket.resize(words.size()); /* LEAK TOO */
}

} // namespace shop

template <typename Handler>
__attribute__((noinline)) static void serve(unsigned count, unsigned us, Handler handler)
{
	for (unsigned i = 0; i < count; i++) {
		handler(i);
		if (us)
			usleep(us);
	}
}

int main(int argc, char **argv)
{
	unsigned count = argc > 1 ? static_cast<unsigned>(atoi(argv[1])) : 1000;
	unsigned us = argc > 2 ? static_cast<unsigned>(atoi(argv[2])) : 0;

	puts("serving");
	fflush(stdout);
	serve(count, us, shop::handle_request);
	printf("%zu sessions\n", shop::sessions.size());
	return 0;
}
