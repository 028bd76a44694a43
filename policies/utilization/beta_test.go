package utilization

import (
	"fmt"
	"math"
	"testing"
)

// The values are from mpmath 1.3.0, betainc(a, b, 0, x, regularized=True), with 40 digits, rounded
// to 15.
func TestBetaCDF(t *testing.T) {
	for _, tc := range []struct{ x, a, b, want float64 }{
		{0.5, 2, 2, 0.5},
		{0.5, 1, 1, 0.5},
		{0.3, 1, 2, 0.51},
		{0.9, 3, 1, 0.729},
		{0.9, 9, 1, 0.387420489},
		{0.9, 4.5, 4.5, 0.998444785844807},
		{0.9, 2, 0.5, 0.541469739275585},
		{0.1, 0.5, 0.5, 0.204832764699133},
		{0.9, 60, 12, 0.951615426817889},
		{0.9, 800, 90, 0.532643829121513},
		{0.9, 9000, 1000, 0.49645377924814},
		{0.9, 90100, 9900, 0.144916785538056},
		{0.01, 2, 300, 0.803836423714857},
		{0.9, 0.01, 0.02, 0.680915205857081},
		{0.9, 0.001, 0.0005, 0.334064846242119},
		{0.99, 1, 0.01, 0.045007413978564},
		{0.5, 1e-6, 1e-6, 0.5},
		{0, 2, 3, 0}, {-1, 2, 3, 0}, {1, 2, 3, 1}, {2, 2, 3, 1},
	} {
		if got := betaCDF(tc.x, tc.a, tc.b); math.Abs(got-tc.want) > 1e-9 {
			t.Errorf("betaCDF(%v, %v, %v) = %.15f, want %.15f", tc.x, tc.a, tc.b, got, tc.want)
		}
	}
}

// A distribution function grows from 0 to 1, and the function of b, a mirrors it.
func TestBetaCDFGrows(t *testing.T) {
	for _, a := range []float64{1e-9, 0.01, 0.5, 1, 7, 300, 2e5} {
		for _, b := range []float64{1e-9, 0.01, 0.5, 1, 7, 300, 2e5} {
			before := 0.0
			for i := range 101 {
				x := float64(i) / 100
				got := betaCDF(x, a, b)
				if math.IsNaN(got) || got < before-1e-9 || got > 1 {
					t.Fatalf("betaCDF(%v, %v, %v) = %v after %v", x, a, b, got, before)
				}
				if mirrored := betaCDF(1-x, b, a); math.Abs(got+mirrored-1) > 1e-8 {
					t.Errorf("betaCDF(%v, %v, %v) = %v, and of the complement %v", x, a, b, got, mirrored)
				}
				before = got
			}
		}
	}
}

func BenchmarkBetaCDF(b *testing.B) {
	for _, shapes := range [][2]float64{{4.5, 4.5}, {80, 20}, {9000, 1000}, {225000, 25000}} {
		b.Run(fmt.Sprintf("%.0f,%.0f", shapes[0], shapes[1]), func(b *testing.B) {
			for b.Loop() {
				betaCDF(0.9, shapes[0], shapes[1])
			}
		})
	}
}
