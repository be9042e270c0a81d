/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * testing.h: notes each test of GoogleTest, and each test case of Catch2, for `heapline check --per-test`. Include it in one source
 * of the test program, after gtest/gtest.h or after Catch2's header; there is nothing to link or to call. C++11. Without heapline
 * the tests run as ever. (glibc before 2.34 needs -ldl.)
 */
#ifndef HEAPLINE_TESTING_H
#define HEAPLINE_TESTING_H

#include <dlfcn.h>

#include <algorithm>
#include <string>

namespace heapline
{

struct hl_case_of_any; /* struct hl_case of heapline.h, which is not needed here */

/* Begins and ends cases of this process, where it is being recorded. */
class Cases
{
      public:
	Cases()
	{
		/* By name, so that nothing need be linked. */
		*reinterpret_cast<void **>(&begin_) = dlsym(RTLD_DEFAULT, "hl_case_begin");
		*reinterpret_cast<void **>(&end_) = dlsym(RTLD_DEFAULT, "hl_case_end");
		*reinterpret_cast<void **>(&drop_) = dlsym(RTLD_DEFAULT, "hl_case_drop");
	}

	/* Bytes that a name cannot have become '?'. */
	void begin(const std::string &name)
	{
		if (!begin_ || !end_ || !drop_)
			return;
		std::string line = name.substr(0, 1023);
		std::replace_if(
			line.begin(), line.end(),
			[](char letter) {
				return static_cast<unsigned char>(letter) < ' ' || letter == 0x7f;
			},
			'?');
		is_open_ = begin_(line.c_str()) == 0;
	}

	/* ${is_skipped}: what the framework keeps of the reason is not the test's. */
	void end(bool is_skipped = false)
	{
		if (is_open_ && is_skipped)
			drop_();
		else if (is_open_)
			end_(nullptr);
		is_open_ = false;
	}

      private:
	int (*begin_)(const char *) = nullptr;
	int (*end_)(hl_case_of_any *) = nullptr;
	int (*drop_)() = nullptr;
	bool is_open_ = false;
};

} // namespace heapline

#ifdef GTEST_API_
namespace heapline
{

/* Comes last when a test begins and first when it ends, so that what other listeners keep is not the test's. */
class GoogleTestListener : public ::testing::EmptyTestEventListener
{
	void OnTestStart(const ::testing::TestInfo &test) override
	{
		cases_.begin(std::string(test.test_suite_name()) + "." + test.name());
	}

	void OnTestEnd(const ::testing::TestInfo &test) override
	{
		cases_.end(test.result()->Skipped());
	}

	Cases cases_;
};

inline bool add_google_test_listener()
{
	static const bool added = [] {
		::testing::UnitTest::GetInstance()->listeners().Append(new GoogleTestListener);
		return true;
	}();

	return added;
}

namespace
{
const bool has_google_test_listener = add_google_test_listener();
}

} // namespace heapline
#endif

#ifdef CATCH_VERSION_MAJOR
namespace heapline
{

#if CATCH_VERSION_MAJOR >= 3
using CatchListenerBase = Catch::EventListenerBase;
#else
using CatchListenerBase = Catch::TestEventListenerBase;
#endif

class CatchListener : public CatchListenerBase
{
      public:
	using CatchListenerBase::CatchListenerBase;

	void testCaseStarting(Catch::TestCaseInfo const &test) override
	{
		cases_.begin(test.name);
	}

	void testCaseEnded(Catch::TestCaseStats const &stats) override
	{
		cases_.end(is_skipped(stats.totals.testCases, 0));
	}

      private:
	/* SKIP() came with Catch2 3.3. */
	template <typename Counts>
	static auto is_skipped(Counts const &counts, int) -> decltype(counts.skipped > 0)
	{
		return counts.skipped > 0;
	}

	template <typename Counts> static bool is_skipped(Counts const &, long)
	{
		return false;
	}

	Cases cases_;
};

CATCH_REGISTER_LISTENER(CatchListener)

} // namespace heapline
#endif

#endif
