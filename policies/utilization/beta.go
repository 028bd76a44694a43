package utilization

import "math"

// The continued fraction of betaCDF needs some √max(a, b) terms, and stops earlier.
const (
	betaTerms     = 2000
	betaPrecision = 1e-10
	betaTiny      = 1e-300 // stands for 0 in a denominator
)

// betaCDF is the regularized incomplete beta function I_x(a, b): the probability that a
// number from the Beta distribution with the positive shapes a and b is at most x. It is
// computed by the continued fraction of Abramowitz and Stegun 26.5.8, with the method of
// Lentz, Thompson and Barnett, and is good to about nine digits for shapes up to 10⁶.
func betaCDF(x, a, b float64) float64 {
	switch {
	case x <= 0:
		return 0
	case x >= 1:
		return 1
	case x > (a+1)/(a+b+2): // where the fraction of the complement converges sooner
		return 1 - betaCDF(1-x, b, a)
	}
	lnA, _ := math.Lgamma(a)
	lnB, _ := math.Lgamma(b)
	lnAB, _ := math.Lgamma(a + b)
	front := math.Exp(lnAB-lnA-lnB+a*math.Log(x)+b*math.Log1p(-x)) / a
	return min(1, front*betaFraction(x, a, b))
}

// betaFraction is 1/(1+d₁/(1+d₂/(1+…))) of betaCDF.
func betaFraction(x, a, b float64) float64 {
	c, d := 1.0, 1/notZero(1-(a+b)*x/(a+1))
	value := d
	for i := 1; i <= betaTerms; i++ {
		m := float64(i)
		even := m * (b - m) * x / ((a + 2*m - 1) * (a + 2*m))
		odd := -(a + m) * (a + b + m) * x / ((a + 2*m) * (a + 2*m + 1))
		step := 1.0
		for _, term := range [...]float64{even, odd} {
			d, c = 1/notZero(1+term*d), notZero(1+term/c)
			step *= c * d
		}
		value *= step
		if math.Abs(step-1) < betaPrecision {
			break
		}
	}
	return value
}

func notZero(x float64) float64 {
	if math.Abs(x) < betaTiny {
		return betaTiny
	}
	return x
}
