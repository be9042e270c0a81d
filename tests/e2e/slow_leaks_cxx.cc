/* SPDX-License-Identifier: BSD-2-Clause */
/* Grows at one line, in C++; see slow_leaks.h. */
#include "slow_leaks.h"

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

static const size_t BYTES = 1000;

static std::vector<std::string> texts;
static std::map<int, std::vector<char>> by_number;
static std::vector<std::function<size_t()>> later;
static std::vector<std::unique_ptr<char[]>> owned;
static int number;

struct node {
	std::shared_ptr<node> other;
	char text[1000];
};

static SITE void made()
{
	KEEP(new char[BYTES]); /* LEAK made */
}

static SITE void told()
{
	texts.push_back(std::string(BYTES, 'x')); /* LEAK told */
}

static SITE void mapped()
{
	by_number[number++].resize(BYTES); /* LEAK mapped */
}

static SITE void cycle()
{
	auto one = std::make_shared<node>(); /* LEAK cycle */

	one->other = one;
}

static SITE void captured()
{
	std::string text(BYTES, 'y'); /* LEAK captured */

	later.push_back([text = std::move(text)] { return text.size(); });
}

static SITE void unique()
{
	owned.push_back(std::make_unique<char[]>(BYTES)); /* LEAK unique */
}

static const struct leak leaks[] = {
	{"made", made},	  {"told", told},	  {"mapped", mapped},
	{"cycle", cycle}, {"captured", captured}, {"unique", unique},
};

LEAKS_MAIN
